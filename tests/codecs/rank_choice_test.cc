#include "codecs/rank_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"

namespace macaw::codecs {
namespace {

using testing::ElementsAre;

// Rank 2 everywhere leaves out 4 + 3 + 3 = 10, with 2·(10 + 20 + 5) = 70 numbers.
const std::vector<RankTable> kThree = {
    {.least = 1, .errors = {8, 4, 2, 1}, .size = 10},
    {.least = 1, .errors = {3.5, 3, 2.8, 2.7}, .size = 20},
    {.least = 1, .errors = {9, 3, 0.5, 0.25}, .size = 5},
};

// (1, 1, ·) leaves out 11.5 and more. Of the others within 10 the least is (2, 1, 3) with
// 20 + 20 + 15 = 55 numbers, which leaves out 8. (2, 1, 2) would take 50 and leave out 10.5.
TEST(RankChoice, ThreeMatricesByHand) { EXPECT_THAT(ChooseRanks(kThree, 2), ElementsAre(2, 1, 3)); }

// With 2.9 in place of 3.5, (2, 1, 2) with its 50 numbers leaves out no more.
TEST(RankChoice, TakesTheFewestNumbersWithinTheLimit) {
  std::vector<RankTable> tables = kThree;
  tables[1].errors[0] = 2.9;
  tables[1].errors[1] = 2.9;
  tables[0].errors[1] = 4.1;
  EXPECT_THAT(ChooseRanks(tables, 2), ElementsAre(2, 1, 2)) << "4.1 + 2.9 + 3, all of the limit";
}

// The errors of (1, 4) are the limit itself, to the cell: 6 + 2 = 4 + 4.
TEST(RankChoice, AChoiceMayTakeAllOfTheLimit) {
  const std::vector<RankTable> tables = {{.least = 1, .errors = {6, 4, 4, 4}, .size = 100},
                                         {.least = 1, .errors = {8, 4, 3, 2}, .size = 10}};
  EXPECT_THAT(ChooseRanks(tables, 2), ElementsAre(1, 4));
  // One whose first matrix alone takes it.
  const std::vector<RankTable> first = {{.least = 1, .errors = {8, 4, 4, 4}, .size = 100},
                                        {.least = 1, .errors = {8, 4, 3, 0}, .size = 10}};
  EXPECT_THAT(ChooseRanks(first, 2), ElementsAre(1, 4));
}

TEST(RankChoice, OfEqualSizesItTakesTheLeastError) {
  const std::vector<RankTable> tables = {{.least = 1, .errors = {9, 4, 1}, .size = 10},
                                         {.least = 1, .errors = {4.5, 4, 3.5}, .size = 10}};
  EXPECT_THAT(ChooseRanks(tables, 2), ElementsAre(3, 1)) << "5.5 instead of 8";
}

TEST(RankChoice, StaysWhereNothingIsGained) {
  const std::vector<RankTable> one = {{.least = 2, .errors = {5, 4, 3, 2}, .size = 7}};
  EXPECT_THAT(ChooseRanks(one, 3), ElementsAre(3));
  const std::vector<RankTable> flat = {{.least = 2, .errors = {4, 4, 3, 2}, .size = 7}};
  EXPECT_THAT(ChooseRanks(flat, 3), ElementsAre(2)) << "nothing is lost";
  // Cells are rounded up: three thirds of a limit are a cell more than it has.
  const std::vector<RankTable> thirds(3, {.least = 1, .errors = {9, 1, 0.9999}, .size = 7});
  EXPECT_THAT(ChooseRanks(thirds, 2), ElementsAre(2, 2, 2));
}

TEST(RankChoice, OfErrorsThatNoHonestClientsSend) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const auto of = [](double a, double b, double c) {
    return ChooseRanks(std::vector<RankTable>(2, {.least = 1, .errors = {a, b, c}, .size = 3}), 2);
  };
  EXPECT_THAT(of(0, 0, 0), ElementsAre(1, 1));
  EXPECT_THAT(of(-1, -2, -3), ElementsAre(1, 1));
  EXPECT_THAT(of(1, 0, 0), ElementsAre(2, 2));
  EXPECT_THAT(of(nan, nan, nan), testing::Each(testing::AllOf(testing::Ge(1), testing::Le(3))));
  EXPECT_THAT(of(inf, inf, inf), testing::Each(testing::AllOf(testing::Ge(1), testing::Le(3))));
  EXPECT_THAT(of(1e308, 1e308, 1), testing::Each(testing::AllOf(testing::Ge(1), testing::Le(3))));
}

struct Choice {
  double error = 0;
  uint64_t size = 0;
};
Choice Of(const std::vector<RankTable>& tables, const std::vector<uint32_t>& ranks) {
  Choice choice;
  for (size_t i = 0; i < tables.size(); ++i) {
    choice.error += tables[i].errors[ranks[i] - tables[i].least];
    choice.size += ranks[i] * tables[i].size;
  }
  return choice;
}

// The least size of all choices with an error of at most `limit`.
uint64_t LeastOf(const std::vector<RankTable>& tables, double limit) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  std::vector<uint32_t> ranks;
  for (const RankTable& table : tables) ranks.push_back(table.least);
  for (size_t i = 0; i < tables.size();) {
    const Choice choice = Of(tables, ranks);
    if (choice.error <= limit) least = std::min(least, choice.size);
    for (i = 0; i < tables.size(); ++i) {
      if (++ranks[i] < tables[i].least + tables[i].errors.size()) break;
      ranks[i] = tables[i].least;
    }
  }
  return least;
}

TEST(RankChoice, NoChoiceWithinTheLimitIsSmaller) {
  RandomStream random({.seed = 11});
  size_t smaller = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const uint32_t rank = 1 + static_cast<uint32_t>(random.Below(3));
    std::vector<RankTable> tables;
    for (uint64_t i = 2 + random.Below(3); i > 0; --i) {
      RankTable table{.least = (rank + 1) / 2, .size = 5 + random.Below(100)};
      double error = std::exp(3 * random.Normal());
      const double falls = random.Uniform();
      for (uint32_t r = table.least; r <= 2 * rank; ++r) {
        table.errors.push_back(error);
        error *= falls + (1 - falls) * random.Uniform();
      }
      tables.push_back(table);
    }
    const std::vector<uint32_t> same(tables.size(), rank);
    const Choice before = Of(tables, same), chosen = Of(tables, ChooseRanks(tables, rank));
    EXPECT_LE(chosen.error, before.error * (1 + 1e-12)) << trial;
    EXPECT_LE(chosen.size, before.size) << trial;
    EXPECT_GE(chosen.size, LeastOf(tables, before.error * (1 + 1e-12))) << trial;
    // A cell a matrix is lost at most.
    const double cells = static_cast<double>(tables.size()) / 10'000;
    EXPECT_LE(chosen.size, std::min(before.size, LeastOf(tables, before.error * (1 - cells))));
    smaller += chosen.size < before.size;
  }
  EXPECT_GT(smaller, 20u);
}

}  // namespace
}  // namespace macaw::codecs
