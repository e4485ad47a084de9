#include "scheduler/availability.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw::scheduler {
namespace {

constexpr uint64_t kPresence = 1, kPhase = 2;  // StreamKey::extra
constexpr int kPauseShift = 8;                 // beside them

// `IsThere`: bool(const Moment&, ClientId).
template <typename IsThere>
class AvailableSampler : public CohortSampler {
 public:
  AvailableSampler(uint64_t seed, uint64_t size, Trainable clients, IsThere is_there)
      : seed_(seed), size_(size), clients_(std::move(clients)), is_there_(std::move(is_there)) {}

  // Goes through the clients in a random order until enough available ones are found. The order is
  // drawn while it is needed; a number that was drawn before is drawn again.
  Cohort Sample(const Moment& moment) const override {
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = moment.round});
    absl::flat_hash_set<uint64_t> seen;
    const auto can_begin = [&](ClientId client) {
      return is_there_(moment, client) && !std::ranges::binary_search(moment.busy, client);
    };
    const uint64_t wanted = std::min(size_, moment.most);
    std::vector<uint64_t> chosen;
    while (chosen.size() < wanted && 2 * seen.size() < clients_.size()) {
      const uint64_t position = stream.Below(clients_.size());
      if (seen.insert(position).second && can_begin(clients_[position])) chosen.push_back(position);
    }
    if (chosen.size() < wanted) {
      std::vector<uint64_t> rest;
      for (uint64_t position = 0; position < clients_.size(); ++position) {
        if (!seen.contains(position)) rest.push_back(position);
      }
      stream.Shuffle(std::span(rest));
      for (size_t i = 0; i < rest.size() && chosen.size() < wanted; ++i) {
        if (can_begin(clients_[rest[i]])) chosen.push_back(rest[i]);
      }
    }
    return {moment.round, clients_.Entries(std::move(chosen))};
  }

 protected:
  const Trainable& clients() const { return clients_; }

 private:
  const uint64_t seed_;
  const uint64_t size_;
  const Trainable clients_;
  const IsThere is_there_;
};

struct IsPresent {
  const virtual_time::Presence* presence;
  bool operator()(const Moment& moment, ClientId client) const {
    return presence->On(client, moment.seconds);
  }
};

class PresentSampler final : public AvailableSampler<IsPresent> {
 public:
  PresentSampler(uint64_t seed, uint64_t size, Trainable clients,
                 const virtual_time::Presence& presence)
      : AvailableSampler(seed, size, std::move(clients), IsPresent{&presence}),
        presence_(presence) {}

  std::optional<double> NextThere(const Moment& moment) const override {
    double next = std::numeric_limits<double>::infinity();
    for (uint64_t position = 0; position < clients().size(); ++position) {
      const ClientId client = clients()[position];
      if (std::ranges::binary_search(moment.busy, client)) continue;
      next = std::min(next, presence_.NextOn(client, moment.seconds));
      if (next <= moment.seconds) break;
    }
    return next;
  }

 private:
  const virtual_time::Presence& presence_;
};

}  // namespace

bool IsAvailable(const AvailabilityOptions& options, Round round, ClientId client,
                 uint32_t pauses) {
  double probability = options.probability;
  if (options.swing > 0) {
    RandomStream phase({.seed = options.seed,
                        .purpose = Purpose::kAvailability,
                        .client = client,
                        .extra = kPhase});
    const double turn = static_cast<double>(round.value) / options.day + phase.Uniform();
    probability *= 1 + options.swing * std::sin(2 * std::numbers::pi * turn);
  }
  RandomStream stream({.seed = options.seed,
                       .purpose = Purpose::kAvailability,
                       .round = round,
                       .client = client,
                       .extra = kPresence + (uint64_t{pauses} << kPauseShift)});
  return stream.Uniform() < probability;
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeAvailableSampler(
    const AvailabilityOptions& options, uint64_t size, Trainable clients) {
  if (!(options.probability > 0 && options.probability <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("cohort.availability is ", options.probability,
                                                   "; choose more than 0 and at most 1"));
  }
  if (!(options.swing >= 0 && options.swing <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.availability_swing is ", options.swing, "; choose 0 to 1"));
  }
  if (options.probability * (1 + options.swing) > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cohort.availability · (1 + cohort.availability_swing) is ",
        options.probability * (1 + options.swing), ", more than certain: choose at most 1"));
  }
  if (options.day == 0) return absl::InvalidArgumentError("cohort.availability_day is 0 rounds");
  const auto is_there = [options](const Moment& moment, ClientId client) {
    return IsAvailable(options, moment.step, client, moment.pauses);
  };
  return std::make_unique<AvailableSampler<decltype(is_there)>>(options.seed, size,
                                                                std::move(clients), is_there);
}

std::unique_ptr<CohortSampler> MakePresentSampler(uint64_t seed, uint64_t size, Trainable clients,
                                                  const virtual_time::Presence& presence) {
  return std::make_unique<PresentSampler>(seed, size, std::move(clients), presence);
}

}  // namespace macaw::scheduler
