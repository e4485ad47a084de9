// Lies of a device where rounds do not wait: about the round in which its client counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
using testing::UnorderedElementsAre;

// A false question in which round a client counts, of device `owner`.
struct ArrivalLie {
  std::string name;
  Next next = Next::kCommit;
  bool keeps = true;  // whether it keeps its lease
  std::function<void(fleet::LeaseRequest&, const Attempt& another)> change;
};

std::vector<ArrivalLie> ArrivalLies() {
  using fleet::LeaseRequest;
  return {
      {.name = "AnotherFence",
       .change = [](LeaseRequest& ask, const Attempt&) { ++ask.trained[0].fence.counter; }},
      {.name = "AnotherEpoch",
       .change = [](LeaseRequest& ask, const Attempt&) { ++ask.trained[0].fence.epoch; }},
      {.name = "AnotherDevicesLease",
       .change = [](LeaseRequest& ask, const Attempt& another) { ask.trained = {another}; }},
      {.name = "AnotherDevicesClientUnderItsFence",
       .change = [](LeaseRequest& ask,
                    const Attempt& another) { ask.trained[0].client = another.client; }},
      {.name = "AnotherDevicesLeaseBesideItsOwn",
       .change = [](LeaseRequest& ask, const Attempt& another) { ask.trained.push_back(another); }},
      {.name = "AClientThatThereIsNot",
       .change = [](LeaseRequest& ask,
                    const Attempt&) { ask.trained[0].client = ClientId(1'000'000); }},
      {.name = "ManyClientsThatThereAreNot",
       .change = [](LeaseRequest& ask, const Attempt&) { ask.trained.resize(100'000); }},
      {.name = "ThatItHoldsNothing",
       .keeps = false,
       .change = [](LeaseRequest& ask, const Attempt&) { ask.running = 0; }},
      {.name = "AnotherSession",
       .next = Next::kRegister,
       .change = [](LeaseRequest& ask, const Attempt&) { ask.session = SessionId(4711); }},
  };
}

class ArrivalLieTest : public Arriving, public testing::WithParamInterface<ArrivalLie> {};

TEST_P(ArrivalLieTest, IsToldNoRoundAndCostsNoOtherDeviceAnything) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  fleet::LeaseRequest ask{
      .session = sessions_.at(first[0]), .running = 1, .trained = {AttemptOf(first[0])}};
  GetParam().change(ask, AttemptOf(first[1]));
  Carry(engine_->Lease(++tickets_, ask, now_));
  const auto answer = AnswerTo(tickets_);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->next, GetParam().next);
  EXPECT_FALSE(answer->training.has_value());
  // The others count as if nothing had been said, and so does it, if it has a lease.
  EXPECT_EQ(Count(first[1]), 0u);
  EXPECT_EQ(Count(first[2]), 0u);
  EXPECT_THAT(CountedIn(1), ElementsAre(first[1], first[2]));
  EXPECT_THAT(All<log::Requeued>(), SizeIs(GetParam().keeps ? 0 : 1));
  if (GetParam().keeps) {
    EXPECT_EQ(Count(first[0]), 1u);
  } else {
    const Asked late = Arrive(first[0]);
    ASSERT_TRUE(late.reply.has_value());
    EXPECT_EQ(late.reply->next, Next::kCommit);
  }
  EXPECT_EQ(Count(first[3]), 1u);
  EXPECT_EQ(engine_->completed(), GetParam().keeps ? 2u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Every, ArrivalLieTest, testing::ValuesIn(ArrivalLies()),
                         [](const auto& info) { return info.param.name; });

// A false part of a client that was told in which round it counts.
struct ToldLie {
  std::string name;
  Verdict verdict = Verdict::kRefused;
  std::string reason;  // part of the answer
  bool keeps = false;  // whether the client still has its lease, and its place in the round
  // `begun`: the lease with which it began; `another`: what another device has.
  std::function<void(fleet::Part&, const fleet::TrainingLease& begun, const Attempt& another)>
      change;
};

std::vector<ToldLie> ToldLies() {
  using fleet::Part;
  using fleet::TrainingLease;
  return {
      {.name = "TheRoundInWhichItBegan",
       .verdict = Verdict::kStale,
       .reason = "not open",
       .keeps = true,
       .change = [](Part& part, const TrainingLease& begun,
                    const Attempt&) { part.round = begun.round; }},
      {.name = "TheNextRound",
       .verdict = Verdict::kStale,
       .reason = "not open",
       .keeps = true,
       .change = [](Part& part, const TrainingLease&, const Attempt&) { ++part.round.value; }},
      {.name = "TheModelFromWhichItBegan",
       .reason = "another broadcast",
       .change = [](Part& part, const TrainingLease& begun,
                    const Attempt&) { part.broadcast = begun.broadcast.name; }},
      {.name = "AnotherDevicesClient",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .keeps = true,
       .change = [](Part& part, const TrainingLease&,
                    const Attempt& another) { part.included[0].attempt = another; }},
      {.name = "AnotherDevicesClientBesideItsOwn",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .change =
           [](Part& part, const TrainingLease&, const Attempt& another) {
             part.included.push_back(part.included[0]);
             part.included.back().attempt = another;
           }},
      {.name = "ThatAnotherDevicesClientIsLeftOut",
       .verdict = Verdict::kStale,
       .reason = "not current",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt& another) { part.left_out.push_back({.attempt = another}); }},
      {.name = "ItsClientTwice",
       .reason = "twice",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt&) { part.included.push_back(part.included[0]); }},
      {.name = "ItsClientInAndLeftOut",
       .reason = "twice",
       .change =
           [](Part& part, const TrainingLease&, const Attempt&) {
             part.left_out.push_back({.attempt = part.included[0].attempt});
           }},
      {.name = "TheWeightOfTwo",
       .reason = "another weight",
       .change = [](Part& part, const TrainingLease&,
                    const Attempt&) { part.included[0].weight *= 2; }},
      {.name = "ThatItsModelIsTooOld",
       .reason = "only the server gives",
       .change =
           [](Part& part, const TrainingLease&, const Attempt&) {
             part.left_out.push_back({.attempt = part.included[0].attempt,
                                      .reason = LeftOutReason::kTooSlow,
                                      .message = "old"});
             part.included.clear();
           }},
  };
}

class ToldLieTest : public Arriving, public testing::WithParamInterface<ToldLie> {};

TEST_P(ToldLieTest, IsTurnedDownAndTheRoundClosesWithOthers) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const Asked told = Arrive(first[2]);
  ASSERT_TRUE(told.reply.has_value() && told.reply->training.has_value());
  ASSERT_EQ(told.reply->training->round, Round(2));
  fleet::Part part = PartOf(*told.reply->training);
  GetParam().change(part, begun_.at(first[2]), AttemptOf(first[3]));
  const fleet::CommitReply reply = Commit(first[2], std::move(part));
  EXPECT_EQ(reply.verdict, GetParam().verdict) << reply.reason;
  EXPECT_THAT(reply.reason, HasSubstr(GetParam().reason));
  ASSERT_THAT(All<log::TurnedDown>(), SizeIs(1));

  EXPECT_EQ(Count(first[3]), 1u) << "what the other one has is still its own";
  EXPECT_EQ(engine_->completed(), 1u);
  const fleet::CommitReply honest = Commit(first[2], *told.reply->training);
  EXPECT_EQ(honest.verdict, GetParam().keeps ? Verdict::kAccepted : Verdict::kStale);
  if (!GetParam().keeps) {
    uint64_t other = 0;
    while (other == first[2] || other == first[3] || !Begin(other)) ASSERT_LT(++other, kOwners);
    EXPECT_EQ(Count(other), 0u);
    EXPECT_THAT(CountedIn(2), UnorderedElementsAre(first[3], other));
  }
  EXPECT_EQ(engine_->completed(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Every, ToldLieTest, testing::ValuesIn(ToldLies()),
                         [](const auto& info) { return info.param.name; });

// The server that told it its round may have been another one (steps_test.cc), so nothing is asked
// of a part but its lease. How old its model is, the server knows by itself.
TEST_F(Arriving, WhoHasNotAskedCountsInTheOpenRoundWithTheAgeThatTheServerKnows) {
  Start();
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const Asked told = Arrive(first[3]);
  ASSERT_TRUE(told.reply.has_value() && told.reply->training.has_value());
  fleet::TrainingLease guessed = *told.reply->training;
  guessed.assignments = begun_.at(first[2]).assignments;
  EXPECT_EQ(Commit(first[2], guessed).verdict, Verdict::kAccepted);
  EXPECT_EQ(Commit(first[2], guessed).verdict, Verdict::kStale) << "once";
  EXPECT_EQ(Commit(first[3], *told.reply->training).verdict, Verdict::kAccepted);
  EXPECT_EQ(engine_->completed(), 2u);
  EXPECT_THAT(CountedIn(2), UnorderedElementsAre(first[2], first[3]));
  EXPECT_EQ(Report(2).mean_staleness, 1);
}

}  // namespace
}  // namespace macaw::server
