#include "scheduler/cohort.h"

#include <algorithm>

#include "core/random.h"
#include "core/status.h"

namespace macaw::scheduler {
namespace {

// `size` distinct clients, every subset equally likely; O(size) for any population.
class UniformSampler final : public CohortSampler {
 public:
  UniformSampler(uint64_t seed, uint64_t size, std::span<const uint32_t> examples)
      : seed_(seed), size_(size), examples_(examples) {}

  Cohort Sample(Round round) const override {
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = round});
    std::vector<uint64_t> ids = SampleWithoutReplacement(stream, examples_.size(), size_);
    std::sort(ids.begin(), ids.end());
    Cohort cohort{.round = round};
    cohort.entries.reserve(ids.size());
    for (const uint64_t id : ids) {
      cohort.entries.push_back({.client = ClientId(id), .load = examples_[id]});
    }
    return cohort;
  }

 private:
  const uint64_t seed_;
  const uint64_t size_;
  const std::span<const uint32_t> examples_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeSampler(const CohortConfig& config,
                                                           std::span<const uint32_t> examples) {
  if (config.size == 0 || config.size > examples.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cohort.size is ", config.size,
                                                   ", but the population has ", examples.size(),
                                                   " clients: choose 1 to ", examples.size()));
  }
  if (config.sampling == "uniform") {
    return std::make_unique<UniformSampler>(config.seed, config.size, examples);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cohort.sampling is \"", config.sampling, "\"; known: uniform"));
}

std::vector<std::pair<std::string, std::string>> SamplingSchemes() {
  return {{"uniform", "cohort.size distinct clients, every subset equally likely"}};
}

}  // namespace macaw::scheduler
