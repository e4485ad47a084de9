// Rounds of a fleet that do not wait for each other, when devices are lost, wait, ask again or are
// too slow, and when a round is aborted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/arriving_fleet.h"

namespace macaw::server {
namespace {

using fixtures::Arriving;
using fleet::Next;
using fleet::Verdict;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST_F(Arriving, ADeviceThatIsLostFreesItsPlaceWhereverItWas) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked arriving = Arrive(first[0]);
  ASSERT_TRUE(arriving.reply.has_value());
  EXPECT_EQ(Count(first[1]), 0u);
  const Asked waits = Arrive(first[2]);
  EXPECT_FALSE(waits.reply.has_value()) << "the round has its arrivals";
  // The arriving device falls silent: another one counts in its place.
  std::vector<uint64_t> others;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    if (owner != first[0]) others.push_back(owner);
  }
  Pass(kLease + 3, others);
  const auto answer = AnswerTo(waits.ticket);
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(1));
  EXPECT_EQ(Commit(first[2], *answer->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_THAT(CountedIn(1), UnorderedElementsAre(first[1], first[2]));
  // It comes back, with a part of a round that is over.
  Join(first[0]);
  EXPECT_EQ(Commit(first[0], *arriving.reply->training).verdict, Verdict::kStale);
  const Asked late = Arrive(first[0]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit) << "what it has trained does not count any more";
}

TEST_F(Arriving, ADeviceThatWaitsToCountKeepsItsLease) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]), three = Arrive(first[2]);
  polls_[first[2]] = three.ticket;
  // It does nothing for longer than any other lease would last. The others make progress.
  for (double passed = 0; passed < 20 * kLease; passed += 4) {
    now_ += FromSeconds(4);
    for (const uint64_t owner : first) {
      const uint64_t progress = owner == first[2] ? 0 : ++progress_;
      Carry(
          engine_->Heartbeat({.session = sessions_.at(owner), .progress = progress}, now_).effects);
    }
    Carry(engine_->Tick(now_));
    if (AnswerTo(polls_.at(first[2])).has_value()) polls_[first[2]] = Arrive(first[2]).ticket;
  }
  EXPECT_THAT(All<log::Requeued>(), IsEmpty());
  Commit(first[0], *one.reply->training);
  Commit(first[1], *two.reply->training);
  const auto answer = AnswerTo(polls_.at(first[2]));
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(2));
}

TEST_F(Arriving, ADeviceCannotHoldARoundByAskingAgain) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Arrive(first[0]);
  Count(first[1]);
  for (double passed = 0; passed < (WaitLimits::kLeastLeases + 2) * kLease; passed += 4) {
    now_ += FromSeconds(4);
    Carry(engine_->Heartbeat({.session = sessions_.at(first[0])}, now_).effects);
    for (const uint64_t owner : {first[2], first[3]}) Heartbeat(owner);
    if (All<log::Requeued>().empty()) Arrive(first[0]);
    Carry(engine_->Tick(now_));
  }
  ASSERT_THAT(All<log::Requeued>(), SizeIs(1));
  EXPECT_THAT(All<log::Requeued>()[0].attempts, ElementsAre(AttemptOf(first[0])));
  EXPECT_EQ(Count(first[2]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(Arriving, AtTheDeadlineARoundClosesWithItsQuorumAndTheOthersTrainOn) {
  EngineOptions options;
  options.round = {.deadline = 20, .quorum = 0.5};
  Start(std::move(options));
  const std::vector<uint64_t> first = BeginAll(), everybody = {0, 1, 2, 3, 4, 5};
  Pass(21, everybody);
  EXPECT_EQ(engine_->completed(), 0u) << "nobody has arrived";
  ASSERT_THAT(All<log::Extended>(), SizeIs(1));
  EXPECT_EQ(All<log::Extended>()[0].needed, 1u);
  EXPECT_EQ(Count(first[0]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_EQ(Count(first[1]), 1u);
  // One of the second round is too slow with its upload.
  const Asked slow = Arrive(first[2]);
  ASSERT_TRUE(slow.reply.has_value());
  Pass(21, everybody);
  EXPECT_EQ(engine_->completed(), 2u);
  ASSERT_THAT(All<log::GaveUp>(), SizeIs(1));
  EXPECT_EQ(All<log::GaveUp>()[0].given_up.at(0).attempt, AttemptOf(first[2]));
  EXPECT_EQ(Commit(first[2], *slow.reply->training).verdict, Verdict::kStale);
  EXPECT_EQ(Count(first[3]), 2u);
}

TEST_F(Arriving, ALeaseThatIsLostBetweenTwoRoundsIsNotTakenOver) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  hold_broadcast_ = true;
  Count(first[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  Carry(engine_->Release({.session = sessions_.at(first[2]), .leaving = true}, now_));
  hold_broadcast_ = false;
  PrepareBroadcast prepare{.order = orders_.at(2)};
  Do(prepare);
  std::vector<Attempt> taken_over;
  for (const log::Leased& leased : All<log::Leased>()) {
    if (!leased.staleness.empty())
      taken_over.insert(taken_over.end(), leased.attempts.begin(), leased.attempts.end());
  }
  EXPECT_THAT(taken_over, ElementsAre(AttemptOf(first[3])));
  EXPECT_EQ(Count(first[3]), 1u);
}

TEST_F(Arriving, AnAbortedRoundBeginsAgainWithoutWhatWasLeased) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const auto changed = engine_->Operate(
      {.action = admin::Action::kAbortRound, .by = "an operator", .round = 2}, now_);
  ASSERT_TRUE(changed.answer.ok()) << changed.answer.status();
  Carry(changed.effects);
  const Asked late = Arrive(first[2]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit);
}

}  // namespace
}  // namespace macaw::server
