#include "scheduler/by_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "scheduler/untried.h"
#include "scheduler/weighted_draw.h"

namespace macaw::scheduler {
namespace {

struct Valued {
  double value = 0;
  ClientId client;
  uint64_t tie = 0;  // of equal values the smaller one comes first
};

// The `count` clients with the largest values, by client; of equal ones with equal ties those with
// the smaller ids.
std::vector<ClientId> Largest(std::vector<Valued> clients, uint64_t count) {
  count = std::min<uint64_t>(count, clients.size());
  std::ranges::sort(clients, [](const Valued& a, const Valued& b) {
    if (a.value != b.value) return a.value > b.value;
    return a.tie != b.tie ? a.tie < b.tie : a.client < b.client;
  });
  std::vector<ClientId> largest;
  for (uint64_t i = 0; i < count; ++i) largest.push_back(clients[i].client);
  std::ranges::sort(largest);
  return largest;
}

class PowerOfChoice final : public CohortSampler {
 public:
  PowerOfChoice(uint64_t seed, uint64_t size, uint64_t candidates, std::span<const uint32_t> rows,
                const Feedback& feedback)
      : seed_(seed),
        size_(size),
        candidates_(candidates),
        rows_(rows),
        draw_(rows),
        feedback_(feedback) {}

  Cohort Sample(const Moment& moment) const override {
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = moment.round});
    // The losses of those that were never asked are equal.
    RandomStream ties(
        {.seed = seed_, .purpose = Purpose::kCohort, .round = moment.round, .extra = 1});
    std::vector<Valued> candidates;
    for (const uint64_t id : draw_.Draw(stream, candidates_)) {
      const KnownClient* const known = feedback_.Find(ClientId(id));
      candidates.push_back({.value = known == nullptr ? KnownClient::kNoLoss : known->loss,
                            .client = ClientId(id),
                            .tie = ties.NextU32()});
    }
    Cohort cohort{.round = moment.round};
    for (const ClientId client : Largest(std::move(candidates), size_))
      cohort.entries.push_back({.client = client, .load = rows_[client.value]});
    return cohort;
  }

 private:
  const uint64_t seed_, size_, candidates_;
  const std::span<const uint32_t> rows_;
  const RowsDraw draw_;
  const Feedback& feedback_;
};

class UpperBound final : public CohortSampler {
 public:
  UpperBound(uint64_t seed, uint64_t size, Trainable clients, const Feedback& feedback)
      : seed_(seed), size_(size), clients_(std::move(clients)), feedback_(feedback) {
    for (uint64_t position = 0; position < clients_.size(); ++position)
      rows_ += clients_.rows(position);
  }

  Cohort Sample(const Moment& moment) const override {
    const std::vector<const KnownClient*> known = KnownAmong(feedback_, clients_);
    const uint64_t untried = std::min(size_, clients_.size() - known.size());
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = moment.round});
    Cohort cohort{.round = moment.round,
                  .entries = clients_.Entries(
                      DrawUntried(stream, feedback_, clients_, known.size(), untried))};
    std::vector<Valued> valued;
    if (untried < size_) {
      const double spread = 2 * feedback_.deviation() * feedback_.deviation() *
                            std::log(std::max(feedback_.total(), 1.0));
      for (const KnownClient* client : known)
        valued.push_back({.value = BoundOf(*client, spread), .client = ClientId(client->client)});
    }
    for (const ClientId client : Largest(std::move(valued), size_ - untried))
      cohort.entries.push_back({.client = client, .load = clients_.RowsOf(client)});
    std::ranges::sort(cohort.entries, {}, &CohortEntry::client);
    return cohort;
  }

 private:
  // `spread`: 2 σ² · ln T
  double BoundOf(const KnownClient& client, double spread) const {
    // What was told hundreds of rounds ago is forgotten.
    if (client.weight < 1e-280) return std::numeric_limits<double>::infinity();
    const double share = clients_.RowsOf(ClientId(client.client)) / rows_;
    return share * (client.loss / client.weight + std::sqrt(spread / client.weight));
  }

  const uint64_t seed_, size_;
  const Trainable clients_;
  const Feedback& feedback_;
  double rows_ = 0;  // of all clients
};

}  // namespace

absl::StatusOr<std::unique_ptr<CohortSampler>> MakePowerOfChoice(const CohortConfig& config,
                                                                 uint64_t size,
                                                                 std::span<const uint32_t> rows,
                                                                 const Feedback& feedback) {
  const uint64_t candidates = config.candidates > 0 ? config.candidates : 2 * size;
  if (candidates < size) {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.candidates is ", candidates, ", but a round asks ", size,
                     " of them (cohort.size, cohort.over_selection): choose at least as many"));
  }
  return std::make_unique<PowerOfChoice>(config.seed, size, candidates, rows, feedback);
}

std::unique_ptr<CohortSampler> MakeUpperBound(const CohortConfig& config, uint64_t size,
                                              Trainable clients, const Feedback& feedback) {
  return std::make_unique<UpperBound>(config.seed, size, std::move(clients), feedback);
}

}  // namespace macaw::scheduler
