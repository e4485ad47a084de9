#include "scheduler/over_selection.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random.h"

namespace macaw::scheduler {
namespace {

constexpr uint64_t kDevice = 1, kTurn = 2;  // StreamKey::extra

class OverSelection final : public CohortSampler {
 public:
  OverSelection(const OverSelectionOptions& options, std::unique_ptr<CohortSampler> candidates)
      : options_(options), candidates_(std::move(candidates)) {}

  Cohort Sample(const Moment& moment) const override {
    Cohort cohort = candidates_->Sample(moment);
    if (cohort.entries.size() <= options_.keep) return cohort;
    std::vector<std::pair<double, CohortEntry>> order;
    order.reserve(cohort.entries.size());
    for (const CohortEntry& entry : cohort.entries)
      order.emplace_back(EmulatedDuration(options_, moment.round, entry), entry);
    std::ranges::sort(order, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second.client < b.second.client;
    });
    order.resize(options_.keep);
    cohort.entries.clear();
    for (auto& [seconds, entry] : order) cohort.entries.push_back(entry);
    std::ranges::sort(cohort.entries, {}, &CohortEntry::client);
    return cohort;
  }

 private:
  const OverSelectionOptions options_;
  const std::unique_ptr<CohortSampler> candidates_;
};

}  // namespace

double EmulatedDuration(const OverSelectionOptions& options, Round round,
                        const CohortEntry& entry) {
  RandomStream device({.seed = options.seed,
                       .purpose = Purpose::kDuration,
                       .client = entry.client,
                       .extra = kDevice});
  RandomStream turn({.seed = options.seed,
                     .purpose = Purpose::kDuration,
                     .round = round,
                     .client = entry.client,
                     .extra = kTurn});
  return static_cast<double>(entry.load) *
         std::exp(options.device_spread * device.Normal() + options.round_spread * turn.Normal());
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeOverSelection(
    const OverSelectionOptions& options, std::unique_ptr<CohortSampler> candidates) {
  if (options.keep == 0) return absl::InvalidArgumentError("cohort.size is 0: choose at least 1");
  for (const auto& [key, spread] : {std::pair("cohort.device_spread", options.device_spread),
                                    std::pair("cohort.round_spread", options.round_spread)}) {
    if (!(spread >= 0) || !std::isfinite(spread))
      return absl::InvalidArgumentError(absl::StrCat(key, " is ", spread, "; choose 0 or more"));
  }
  return std::make_unique<OverSelection>(options, std::move(candidates));
}

}  // namespace macaw::scheduler
