#include "scheduler/availability.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw::scheduler {
namespace {

constexpr uint64_t kPresence = 1, kPhase = 2;  // StreamKey::extra

class AvailableSampler final : public CohortSampler {
 public:
  AvailableSampler(const AvailabilityOptions& options, uint64_t size,
                   std::span<const uint32_t> examples)
      : options_(options), size_(size), examples_(examples) {}

  // Clients in random order until enough of them are available. The order is drawn as it is needed:
  // numbers drawn before are drawn again.
  Cohort Sample(Round round) const override {
    RandomStream stream({.seed = options_.seed, .purpose = Purpose::kCohort, .round = round});
    absl::flat_hash_set<uint64_t> seen;
    std::vector<uint64_t> chosen;
    while (chosen.size() < size_ && 2 * seen.size() < examples_.size()) {
      const uint64_t id = stream.Below(examples_.size());
      if (seen.insert(id).second && IsAvailable(options_, round, ClientId(id)))
        chosen.push_back(id);
    }
    if (chosen.size() < size_) {
      std::vector<uint64_t> rest;
      for (uint64_t id = 0; id < examples_.size(); ++id) {
        if (!seen.contains(id)) rest.push_back(id);
      }
      stream.Shuffle(std::span(rest));
      for (size_t i = 0; i < rest.size() && chosen.size() < size_; ++i) {
        if (IsAvailable(options_, round, ClientId(rest[i]))) chosen.push_back(rest[i]);
      }
    }
    std::ranges::sort(chosen);
    Cohort cohort{.round = round};
    cohort.entries.reserve(chosen.size());
    for (const uint64_t id : chosen)
      cohort.entries.push_back({.client = ClientId(id), .load = examples_[id]});
    return cohort;
  }

 private:
  const AvailabilityOptions options_;
  const uint64_t size_;
  const std::span<const uint32_t> examples_;
};

}  // namespace

bool IsAvailable(const AvailabilityOptions& options, Round round, ClientId client) {
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
                       .extra = kPresence});
  return stream.Uniform() < probability;
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeAvailableSampler(
    const AvailabilityOptions& options, uint64_t size, std::span<const uint32_t> examples) {
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
  if (size == 0 || size > examples.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cohort.size is ", size,
                                                   ", but the population has ", examples.size(),
                                                   " clients: choose 1 to ", examples.size()));
  }
  return std::make_unique<AvailableSampler>(options, size, examples);
}

}  // namespace macaw::scheduler
