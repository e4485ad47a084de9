#include "virtual_time/closing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace macaw::virtual_time {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<double> kTurns = {5, 1, 9, 3};

TEST(CloseRound, EndsWithItsLastTurn) {
  const Closing closing = CloseRound(kTurns, {});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(closing.seconds, 9);
  EXPECT_EQ(closing.late, 0u);
  EXPECT_EQ(closing.not_needed, 0u);
  EXPECT_FALSE(closing.dropped);
}

TEST(CloseRound, WithoutTurnsTakesNoTime) {
  EXPECT_EQ(CloseRound({}, {.deadline = 4}).seconds, 0);
  EXPECT_FALSE(CloseRound({}, {.deadline = 4, .drops_below = true}).dropped);
}

TEST(CloseRound, KeepsTheFirst) {
  const Closing closing = CloseRound(kTurns, {.keep = 2});
  EXPECT_THAT(closing.kept, ElementsAre(1, 3));
  EXPECT_EQ(closing.seconds, 3);
  EXPECT_EQ(closing.not_needed, 2u);
  EXPECT_THAT(CloseRound(kTurns, {.keep = 9}).kept, ElementsAre(0, 1, 2, 3));
}

TEST(CloseRound, OfEqualTurnsTheFirstPlaceCounts) {
  EXPECT_THAT(CloseRound(std::vector<double>{2, 2, 1, 2}, {.keep = 2}).kept, ElementsAre(0, 2));
}

TEST(CloseRound, EndsAtTheDeadlineIfEnoughHaveArrived) {
  const Closing closing = CloseRound(kTurns, {.deadline = 5, .needed = 3});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 3)) << "a turn that ends at the deadline counts";
  EXPECT_EQ(closing.seconds, 5);
  EXPECT_EQ(closing.late, 1u);
  const Closing waited = CloseRound(kTurns, {.deadline = 6, .needed = 2});
  EXPECT_THAT(waited.kept, ElementsAre(0, 1, 3));
  EXPECT_EQ(waited.seconds, 6) << "it waits for the client that is late";
}

TEST(CloseRound, IsOverBeforeTheDeadlineIfAllHaveArrived) {
  EXPECT_EQ(CloseRound(kTurns, {.deadline = 50}).seconds, 9);
  EXPECT_EQ(CloseRound(kTurns, {.keep = 2, .deadline = 50}).seconds, 3);
}

TEST(CloseRound, WaitsBeyondTheDeadlineForThoseThatItNeeds) {
  const Closing closing = CloseRound(kTurns, {.deadline = 2, .needed = 3});
  EXPECT_THAT(closing.kept, ElementsAre(0, 1, 3));
  EXPECT_EQ(closing.seconds, 5);
  EXPECT_EQ(closing.late, 1u);
  EXPECT_EQ(CloseRound(kTurns, {.deadline = 2, .needed = 4}).seconds, 9);
}

TEST(CloseRound, NeedsOneClientAtLeast) {
  const Closing closing = CloseRound(kTurns, {.deadline = 0.5, .needed = 0});
  EXPECT_THAT(closing.kept, ElementsAre(1));
  EXPECT_EQ(closing.seconds, 1);
}

TEST(CloseRound, DropsTheRoundBelowItsQuorum) {
  const Closing closing = CloseRound(kTurns, {.deadline = 2, .needed = 3, .drops_below = true});
  EXPECT_TRUE(closing.dropped);
  EXPECT_THAT(closing.kept, IsEmpty());
  EXPECT_EQ(closing.seconds, 2);
  EXPECT_EQ(closing.late, 3u);
  EXPECT_FALSE(CloseRound(kTurns, {.deadline = 5, .needed = 3, .drops_below = true}).dropped);
}

TEST(CloseRound, NeedsNoMoreThanItKeeps) {
  const Closing closing = CloseRound(kTurns, {.keep = 2, .deadline = 2, .needed = 4});
  EXPECT_THAT(closing.kept, ElementsAre(1, 3));
  EXPECT_EQ(closing.seconds, 3);
  EXPECT_EQ(closing.late, 0u);
  EXPECT_EQ(closing.not_needed, 2u);
}

}  // namespace
}  // namespace macaw::virtual_time
