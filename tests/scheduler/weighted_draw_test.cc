#include "scheduler/weighted_draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace macaw::scheduler {
namespace {

using ::testing::ElementsAre;

constexpr int kDraws = 20000;

// Two of weights 1, 2 and 3, one after the other: {0, 1} with 1/6 · 2/5 + 2/6 · 1/4 = 0.15, {0, 2}
// with 1/6 · 3/5 + 3/6 · 1/3 = 0.267, {1, 2} with the rest.
void ExpectInProportion(const std::map<std::vector<uint64_t>, int>& drawn) {
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_NEAR(drawn.at({0, 1}) / double{kDraws}, 0.15, 0.012);
  EXPECT_NEAR(drawn.at({0, 2}) / double{kDraws}, 0.2667, 0.012);
  EXPECT_NEAR(drawn.at({1, 2}) / double{kDraws}, 0.5833, 0.012);
}

TEST(DrawWeighted, DrawsOneAfterTheOtherInProportion) {
  RandomStream stream({.seed = 1});
  const std::vector<double> weights = {1, 2, 3};
  std::map<std::vector<uint64_t>, int> drawn;
  for (int i = 0; i < kDraws; ++i) ++drawn[DrawWeighted(stream, weights, 2)];
  ExpectInProportion(drawn);
}

TEST(DrawWeighted, TakesPlacesWithoutWeightLast) {
  RandomStream stream({.seed = 1});
  const std::vector<double> weights = {0, 0, 5, 0, 1e-300};
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(DrawWeighted(stream, weights, 2), ElementsAre(2, 4));
    EXPECT_THAT(DrawWeighted(stream, weights, 3), ElementsAre(0, 2, 4));
    EXPECT_EQ(DrawWeighted(stream, weights, 5).size(), 5u);
    EXPECT_TRUE(DrawWeighted(stream, weights, 0).empty());
  }
}

TEST(RowsDraw, DrawsOneAfterTheOtherInProportion) {
  RandomStream stream({.seed = 2});
  const std::vector<uint32_t> rows = {1, 2, 3};
  const RowsDraw draw(rows);
  std::map<std::vector<uint64_t>, int> drawn;
  for (int i = 0; i < kDraws; ++i) ++drawn[draw.Draw(stream, 2)];
  ExpectInProportion(drawn);
}

TEST(RowsDraw, FindsClientsBesideOneThatHasNearlyAllRows) {
  RandomStream stream({.seed = 3});
  const std::vector<uint32_t> rows = {0, 1, 4000000000, 1, 0};
  const RowsDraw draw(rows);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(draw.Draw(stream, 3), ElementsAre(1, 2, 3));
    EXPECT_THAT(draw.Draw(stream, 9), ElementsAre(1, 2, 3)) << "there are no more";
    EXPECT_EQ(draw.Draw(stream, 2).size(), 2u);
  }
}

}  // namespace
}  // namespace macaw::scheduler
