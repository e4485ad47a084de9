#include "virtual_time/closing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace macaw::virtual_time {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<double> kTurns = {5, 1, 9, 3};

// Of equal turns the first place counts.
Closing Close(const std::vector<double>& seconds, const ClosingRules& rules) {
  return CloseRound(seconds, rules, [](uint32_t place) { return uint64_t{place}; });
}

TEST(CloseRound, EndsWithItsLastTurn) {
  const Closing closing = Close(kTurns, {});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(closing.seconds, 9);
  EXPECT_EQ(closing.late, 0u);
  EXPECT_EQ(closing.not_needed, 0u);
  EXPECT_FALSE(closing.dropped);
}

TEST(CloseRound, WithoutTurnsTakesNoTime) {
  EXPECT_EQ(Close({}, {.deadline = 4}).seconds, 0);
  EXPECT_FALSE(Close({}, {.deadline = 4, .drops_below = true}).dropped);
}

TEST(CloseRound, KeepsTheFirst) {
  const Closing closing = Close(kTurns, {.keep = 2});
  EXPECT_THAT(closing.kept, ElementsAre(1, 3));
  EXPECT_EQ(closing.seconds, 3);
  EXPECT_EQ(closing.not_needed, 2u);
  EXPECT_THAT(Close(kTurns, {.keep = 9}).kept, ElementsAre(0, 1, 2, 3));
}

TEST(CloseRound, OfEqualTurnsThoseWithTheSmallestTieCount) {
  const std::vector<double> turns = {2, 2, 1, 2, 5};
  const std::vector<uint64_t> ties = {7, 9, 8, 3, 0};
  std::set<uint32_t> asked;
  const auto kept = [&](const ClosingRules& rules) {
    return CloseRound(turns, rules,
                      [&](uint32_t place) {
                        asked.insert(place);
                        return ties[place];
                      })
        .kept;
  };
  EXPECT_THAT(kept({.keep = 1}), ElementsAre(2));
  EXPECT_THAT(kept({.keep = 4}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kept({.deadline = 2}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(asked, IsEmpty()) << "all of the equal ones count, or none does";
  EXPECT_THAT(kept({.keep = 2}), ElementsAre(2, 3));
  EXPECT_THAT(kept({.keep = 3}), ElementsAre(0, 2, 3));
  EXPECT_THAT(kept({.deadline = 0.5, .needed = 2}), ElementsAre(2, 3));
  EXPECT_THAT(asked, ElementsAre(0, 1, 3));
}

TEST(CloseRound, EndsAtTheDeadlineIfEnoughHaveArrived) {
  const Closing closing = Close(kTurns, {.deadline = 5, .needed = 3});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 3)) << "a turn that ends at the deadline counts";
  EXPECT_EQ(closing.seconds, 5);
  EXPECT_EQ(closing.late, 1u);
  const Closing waited = Close(kTurns, {.deadline = 6, .needed = 2});
  EXPECT_THAT(waited.kept, ElementsAre(0, 1, 3));
  EXPECT_EQ(waited.seconds, 6) << "it waits for the client that is late";
}

TEST(CloseRound, IsOverBeforeTheDeadlineIfAllHaveArrived) {
  EXPECT_EQ(Close(kTurns, {.deadline = 50}).seconds, 9);
  EXPECT_EQ(Close(kTurns, {.keep = 2, .deadline = 50}).seconds, 3);
}

TEST(CloseRound, WaitsBeyondTheDeadlineForThoseThatItNeeds) {
  const Closing closing = Close(kTurns, {.deadline = 2, .needed = 3});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 3));
  EXPECT_EQ(closing.seconds, 5);
  EXPECT_EQ(closing.late, 1u);
  EXPECT_EQ(Close(kTurns, {.deadline = 2, .needed = 4}).seconds, 9);
}

TEST(CloseRound, NeedsOneClientAtLeast) {
  const Closing closing = Close(kTurns, {.deadline = 0.5, .needed = 0});
  EXPECT_THAT(closing.kept, ElementsAre(1));
  EXPECT_EQ(closing.seconds, 1);
}

TEST(CloseRound, DropsTheRoundBelowItsQuorum) {
  const Closing closing = Close(kTurns, {.deadline = 2, .needed = 3, .drops_below = true});
  EXPECT_TRUE(closing.dropped);
  EXPECT_THAT(closing.kept, IsEmpty());
  EXPECT_EQ(closing.seconds, 2);
  EXPECT_EQ(closing.late, 3u);
  EXPECT_FALSE(Close(kTurns, {.deadline = 5, .needed = 3, .drops_below = true}).dropped);
}

TEST(CloseRound, NeedsNoMoreThanItKeeps) {
  const Closing closing = Close(kTurns, {.keep = 2, .deadline = 2, .needed = 4});
  EXPECT_THAT(closing.kept, ElementsAre(1, 3));
  EXPECT_EQ(closing.seconds, 3);
  EXPECT_EQ(closing.late, 0u);
  EXPECT_EQ(closing.not_needed, 2u);
}

}  // namespace
}  // namespace macaw::virtual_time
