// Rounds of a fleet that do not wait for each other, as (state, event) → Effects: which arrivals
// count, in which round, and with which age.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/arriving_fleet.h"

namespace macaw::server {
namespace {

using fixtures::Arriving;
using fleet::LeftOutReason;
using fleet::Next;
using fleet::Verdict;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(Arriving, AClientThatTrainsOnCountsInALaterRoundWithTheAgeOfItsModel) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(4));
  EXPECT_EQ(Count(first[0]), 0u);
  EXPECT_EQ(engine_->completed(), 0u);
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  EXPECT_THAT(CountedIn(1), ElementsAre(first[0], first[1]));
  EXPECT_EQ(Report(1).mean_staleness, 0);
  // In round 2 four train: those that go on, and two of the four others.
  EXPECT_THAT(orders_.at(2).staleness, ElementsAre(1));
  EXPECT_EQ(Report(1).cohort, 4u);
  EXPECT_EQ(Count(first[3]), 1u);
  std::vector<uint64_t> second;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    if (owner != first[2] && owner != first[3] && Begin(owner)) second.push_back(owner);
  }
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_EQ(begun_.at(second[0]).round, Round(2));
  EXPECT_EQ(Count(second[0]), 0u);
  EXPECT_EQ(engine_->completed(), 2u);
  EXPECT_EQ(Report(2).mean_staleness, 0.5);
  EXPECT_EQ(Count(first[2]), 2u);
  EXPECT_EQ(Count(second[1]), 1u);
  EXPECT_EQ(engine_->completed(), 3u);
  EXPECT_EQ(Report(3).mean_staleness, 1.5);
  // The log says it, and who goes on.
  std::map<ClientId, uint64_t> ages;
  for (const log::Accepted& accepted : All<log::Accepted>()) {
    if (accepted.round == Round(3)) {
      ASSERT_THAT(accepted.included, SizeIs(1));
      ages[accepted.included[0].client] = accepted.staleness.at(0);
    }
  }
  EXPECT_EQ(ages,
            (std::map<ClientId, uint64_t>{{ClientId(first[2]), 2}, {ClientId(second[1]), 1}}));
  EXPECT_EQ(All<log::RoundOpened>().at(2).arrivals, 2u);
  EXPECT_TRUE(All<log::Requeued>().empty());
  EXPECT_TRUE(All<log::GaveUp>().empty());
}

TEST_F(Arriving, WhoComesWhileARoundHasItsArrivalsCountsInTheNextOne) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]), three = Arrive(first[2]);
  ASSERT_TRUE(one.reply.has_value() && two.reply.has_value());
  EXPECT_FALSE(three.reply.has_value());
  EXPECT_TRUE(one.reply->training->broadcast.channels.at(0).bytes == nullptr);
  EXPECT_EQ(Commit(first[1], *two.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 0u) << "another one is arriving";
  EXPECT_EQ(Commit(first[0], *one.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 1u);
  const auto answer = AnswerTo(three.ticket);
  ASSERT_TRUE(answer.has_value() && answer->training.has_value());
  EXPECT_EQ(answer->training->round, Round(2));
  EXPECT_EQ(answer->training->assignments.at(0).staleness, 1u);
  EXPECT_FALSE(answer->training->arrives) << "it is trained";
  EXPECT_EQ(Commit(first[2], *answer->training).verdict, Verdict::kAccepted);
}

TEST_F(Arriving, ThoseThatWaitAreServedInTheirOrderAndOnceACallIsRepeated) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked one = Arrive(first[0]), two = Arrive(first[1]);
  const Asked four = Arrive(first[3]), three = Arrive(first[2]);
  Pass(31, first);  // their calls are answered, and they ask again
  ASSERT_TRUE(AnswerTo(four.ticket).has_value());
  EXPECT_EQ(AnswerTo(four.ticket)->next, Next::kWait);
  const Asked again = Arrive(first[0]);
  ASSERT_TRUE(again.reply.has_value() && again.reply->training.has_value()) << "a lost answer";
  EXPECT_EQ(again.reply->training->round, Round(1));
  const Asked fourth = Arrive(first[3]), third = Arrive(first[2]);
  EXPECT_FALSE(fourth.reply.has_value() || third.reply.has_value());
  Commit(first[0], *again.reply->training);
  Commit(first[1], *two.reply->training);
  EXPECT_TRUE(AnswerTo(fourth.ticket).has_value());
  EXPECT_TRUE(AnswerTo(third.ticket).has_value());
}

TEST_F(Arriving, AnUpdateOfAModelThatIsTooOldDoesNotCountAndFreesItsPlace) {
  EngineOptions options{.run = Run(/*arrivals=*/1, /*concurrency=*/2)};
  options.run.asynchronous.max_staleness = 1;
  Start(std::move(options));
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(Count(first[0]), 0u);
  for (uint32_t round = 2; round <= 3; ++round) {  // others step on
    for (uint64_t owner = 0; owner < kOwners && engine_->completed() < round; ++owner) {
      if (owner != first[1] && Begin(owner)) Count(owner);
    }
    ASSERT_EQ(engine_->completed(), round);
  }
  const Asked late = Arrive(first[1]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit);
  EXPECT_FALSE(late.reply->training.has_value());
  ASSERT_THAT(All<log::GaveUp>(), SizeIs(1));
  const log::GivenUp gave_up = All<log::GaveUp>()[0].given_up.at(0);
  EXPECT_EQ(gave_up.attempt, AttemptOf(first[1]));
  EXPECT_EQ(gave_up.reason, LeftOutReason::kTooSlow);
  EXPECT_THAT(gave_up.message, HasSubstr("round.max_staleness = 1"));
  // It may be drawn again.
  const bool before = Begin(first[1]);
  EXPECT_FALSE(before) << "not in this round";
}

TEST_F(Arriving, WhatADeviceHasBegunCountsAlthoughItDeclines) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  const Asked asked = Arrive(first[0], "not at night");
  ASSERT_TRUE(asked.reply.has_value() && asked.reply->training.has_value());
  EXPECT_EQ(Commit(first[0], *asked.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(engine_->completed(), 1u);
  for (const log::Member& member : All<log::RoundOpened>().at(1).cohort)
    EXPECT_NE(member.client, ClientId(first[0])) << "it is not drawn while it declines";
}

TEST_F(Arriving, WithAsManyPlacesAsArrivalsARoundDrawsTheCohortOfASynchronousOne) {
  Start({.run = Run(/*arrivals=*/3, /*concurrency=*/0)});
  for (int turn = 0; turn < 20 && engine_->completed() < 3; ++turn) {
    for (const uint64_t owner : BeginAll()) Count(owner);
  }
  EXPECT_GE(engine_->completed(), 3u);
  std::vector<uint32_t> rows = fixtures::Examples();
  rows.resize(kOwners);
  const auto sampler = *scheduler::MakeSampler({.size = 3, .seed = 5}, rows);
  for (const log::RoundOpened& opened : All<log::RoundOpened>()) {
    std::vector<log::Member> drawn;
    for (const scheduler::CohortEntry& entry : sampler->Sample(opened.round).entries)
      drawn.push_back({.client = entry.client});
    EXPECT_EQ(opened.cohort, drawn) << opened.round.value;
  }
}

TEST_F(Arriving, AProgramThatDoesNotArriveIsRefusedInWords) {
  engine_.emplace(EngineOptions{.run = Run(), .workers = 2}, scheduler_);
  fleet::RegisterRequest old = Owner(0, 1);
  old.arrives = false;
  old.program = "macaw-worker 0.1.0";
  const auto refused = engine_->Register(old, TableOf(0), now_);
  EXPECT_THAT(std::string(refused.answer.status().message()),
              testing::AllOf(HasSubstr("macaw-worker 0.1.0"), HasSubstr("update it")));
  // One without clients evaluates, which is as ever.
  fleet::RegisterRequest tester = old;
  tester.clients = 0;
  tester.owner = false;
  tester.central_test_rows = 5;
  EXPECT_TRUE(engine_->Register(tester, {}, now_).answer.ok());
}

}  // namespace
}  // namespace macaw::server
