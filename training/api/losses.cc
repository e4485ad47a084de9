#include "training/api/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "training/api/metrics.h"

namespace macaw::training {
namespace {

constexpr size_t kAlwaysSaid = 2;  // rows and losses; of other sums NaN says that nobody knows

bool CanCount(const StageOutcome& outcome) {
  for (size_t i = 0; i < outcome.sums.size(); ++i) {
    const bool unsaid = i >= kAlwaysSaid && std::isnan(outcome.sums[i]);
    if (!IsWithinLimit(outcome.sums[i]) && !unsaid) return false;
  }
  return true;
}

double MeanLoss(const StageOutcome& outcome) {
  const double loss = outcome.sums[1] / outcome.sums[0];
  return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
}

}  // namespace

size_t LeastLoss(std::span<const StageOutcome> outcomes) {
  return static_cast<size_t>(std::ranges::min_element(outcomes, {}, MeanLoss) - outcomes.begin());
}

bool LossesCanCount(std::span<const Stage> stages, std::span<const StageOutcome> outcomes,
                    bool compares) {
  bool compared = false, one_can_count = false;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const bool counts = CanCount(outcomes[i]);
    if (compares && stages[i].kind == StageKind::kLoss) {
      compared = true;
      one_can_count |= counts;
    } else if (!counts) {
      return false;
    }
  }
  return !compared || one_can_count;
}

}  // namespace macaw::training
