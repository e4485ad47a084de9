#include "training/api/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "training/api/metrics.h"

namespace macaw::training {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<StageOutcome> OfLosses(const std::vector<double>& losses) {
  std::vector<StageOutcome> outcomes;
  for (const double loss : losses) outcomes.emplace_back().sums = {2, 2 * loss, 1};
  return outcomes;
}

std::vector<Stage> OfKinds(const std::vector<StageKind>& kinds) {
  std::vector<Stage> stages;
  for (const StageKind kind : kinds) stages.emplace_back().kind = kind;
  return stages;
}

TEST(Losses, TheLeastIsTheFirstOfEquals) {
  EXPECT_EQ(LeastLoss(OfLosses({3, 1, 1})), 1u);
  EXPECT_EQ(LeastLoss(OfLosses({1, 3})), 0u);
}

TEST(Losses, OneThatIsNotFiniteIsAboveAllOthers) {
  EXPECT_EQ(LeastLoss(OfLosses({std::nan(""), 5, 4})), 2u);
  EXPECT_EQ(LeastLoss(OfLosses({5, std::nan(""), 4})), 2u);
  EXPECT_EQ(LeastLoss(OfLosses({-kInfinity, 4, kInfinity})), 1u);
  EXPECT_EQ(LeastLoss(OfLosses({std::nan(""), std::nan("")})), 0u);
}

TEST(Losses, HaveToBeFiniteForAClientToCount) {
  const auto stages = OfKinds({StageKind::kLoss, StageKind::kLoss, StageKind::kTrain});
  const auto finite = [&](const std::vector<double>& losses, bool compares) {
    return LossesCanCount(stages, OfLosses(losses), compares);
  };
  for (const bool compares : {false, true}) {
    EXPECT_TRUE(finite({1, 2, 3}, compares));
    EXPECT_FALSE(finite({1, 2, std::nan("")}, compares)) << "it has trained";
    EXPECT_FALSE(finite({std::nan(""), kInfinity, 3}, compares)) << "no model has a loss";
    EXPECT_EQ(finite({std::nan(""), 2, 3}, compares), compares);
    EXPECT_EQ(finite({1, kInfinity, 3}, compares), compares);
    EXPECT_TRUE(LossesCanCount(OfKinds({StageKind::kTrain}), OfLosses({1}), compares));
  }
}

TEST(Losses, OtherSumsMayBeUnknown) {
  const auto finite = [](const std::vector<double>& sums) {
    std::vector<StageOutcome> outcomes(1);
    outcomes[0].sums = sums;
    return LossesCanCount(OfKinds({StageKind::kTrain}), outcomes, /*compares=*/false);
  };
  EXPECT_TRUE(finite({2, 3, std::nan("")}));
  EXPECT_FALSE(finite({2, 3, kInfinity}));
  EXPECT_FALSE(finite({2, std::nan(""), 1}));
  EXPECT_FALSE(finite({std::nan(""), 3, 1}));
}

TEST(Losses, HaveToBeWithinTheLimitForAClientToCount) {
  const auto counts = [](const std::vector<double>& losses, bool compares) {
    const auto stages = OfKinds({StageKind::kLoss, StageKind::kTrain});
    return LossesCanCount(stages, OfLosses(losses), compares);
  };
  constexpr double kMost = kLargestSum / 2;  // of two rows
  for (const bool compares : {false, true}) {
    EXPECT_TRUE(counts({kMost, -kMost}, compares));
    EXPECT_FALSE(counts({1, 1.001 * kMost}, compares));
    EXPECT_FALSE(counts({1, -1.001 * kMost}, compares));
    EXPECT_FALSE(counts({1.001 * kMost, 1}, compares)) << "no model has a loss";
  }
  std::vector<StageOutcome> outcomes(1);
  outcomes[0].sums = {2, 3, 1.001 * kLargestSum};
  EXPECT_FALSE(LossesCanCount(OfKinds({StageKind::kTrain}), outcomes)) << "an absolute error";
}

TEST(MetricSums, BeyondTheLimitAreInfiniteWithTheirSign) {
  MetricSums sums = {4, kLargestSum, -kLargestSum, 1.001 * kLargestSum, -1e300, std::nan("")};
  MakeInfiniteBeyondLimit(sums);
  EXPECT_TRUE(std::isnan(sums.back()));
  sums.pop_back();
  EXPECT_EQ(sums, (MetricSums{4, kLargestSum, -kLargestSum, kInfinity, -kInfinity}));
}

}  // namespace
}  // namespace macaw::training
