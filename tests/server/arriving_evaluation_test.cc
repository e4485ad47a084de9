// Rounds that do not wait for each other, and evaluations on the devices that train in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tests/server/arriving_fleet.h"

namespace macaw::server {
namespace {

using fixtures::Arriving;
using fleet::Next;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ArrivingAndEvaluating : public Arriving {
 protected:
  // The models after these rounds are evaluated on all devices.
  void StartWith(uint32_t rounds, std::set<uint32_t> evaluated, bool gates = false) {
    evaluated_ = std::move(evaluated);
    EngineOptions options{.run = Run(), .evaluation_gates = gates};
    options.run.rounds = rounds;
    options.run.evaluation.clients = true;
    Start(std::move(options));
  }
  // The device asks for work and does the evaluation that it gets. False: it gets none.
  bool Evaluate(uint64_t owner) {
    const Asked asked = Call(owner, {.wanted = 1});
    if (!asked.reply.has_value() || !asked.reply->evaluation.has_value()) return false;
    fleet::CommitRequest request{.session = sessions_.at(owner), .commit_id = ++commit_ids_};
    for (const fleet::EvaluationTask& task : asked.reply->evaluation->tasks) {
      request.evaluations.push_back({.task = task, .round = asked.reply->evaluation->round});
      request.evaluations.back().sums.resize(
          training::SchemaFor(TaskKind::kClassification).sums.size());
    }
    Carry(engine_->Commit(++tickets_, std::move(request), absl::OkStatus(), now_));
    return true;
  }
  std::vector<uint64_t> EvaluateAll() {
    std::vector<uint64_t> evaluated;
    for (uint64_t owner = 0; owner < kOwners; ++owner) {
      if (Evaluate(owner)) evaluated.push_back(owner);
    }
    return evaluated;
  }
  std::vector<Attempt> TakenBack() const {
    std::vector<Attempt> attempts;
    for (const log::Requeued& requeued : All<log::Requeued>())
      attempts.insert(attempts.end(), requeued.attempts.begin(), requeued.attempts.end());
    return attempts;
  }
};

// A round whose deadline has passed may wait for the evaluation of the one before. Who was drawn
// and has not begun can begin meanwhile.
TEST_F(ArrivingAndEvaluating, WhoIsIdleBeginsWhileARoundThatIsOverWaitsForAnEvaluation) {
  evaluated_ = {1};
  EngineOptions options{.run = Run()};
  options.run.evaluation.clients = true;
  options.round = {.deadline = 20, .quorum = 0.5};
  Start(std::move(options));
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(4));
  Count(first[0]);
  Count(first[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  Count(first[2]);
  ASSERT_TRUE(Arrive(first[3]).reply.has_value());
  Pass(21, {0, 1, 2, 3, 4, 5});
  ASSERT_THAT(All<log::GaveUp>(), SizeIs(1)) << "the round is over";
  ASSERT_EQ(engine_->completed(), 1u) << "it waits for the evaluation";
  const std::vector<log::RoundOpened> opened = All<log::RoundOpened>();
  ASSERT_THAT(opened, SizeIs(2));
  uint64_t begun = 0;
  for (const log::Member& member : opened[1].cohort) {
    const uint64_t owner = member.client.value;
    if (owner == first[2] || owner == first[3]) continue;
    EXPECT_TRUE(Evaluate(owner));
    EXPECT_TRUE(Begin(owner));
    ++begun;
  }
  EXPECT_EQ(begun, 2u);
  EXPECT_EQ(engine_->completed(), 1u);
}

TEST_F(ArrivingAndEvaluating, AfterTheLastRoundThoseThatTrainedEvaluate) {
  StartWith(/*rounds=*/1, {1});
  const std::vector<uint64_t> first = BeginAll();
  ASSERT_THAT(first, SizeIs(4));
  const Asked one = Arrive(first[0]), two = Arrive(first[1]), waits = Arrive(first[2]);
  Commit(first[0], *one.reply->training);
  EXPECT_FALSE(waits.reply.has_value());
  Commit(first[1], *two.reply->training);
  ASSERT_EQ(engine_->completed(), 1u);
  // One waited for a round, another one has trained only now. No round opens any more.
  ASSERT_TRUE(AnswerTo(waits.ticket).has_value());
  EXPECT_EQ(AnswerTo(waits.ticket)->next, Next::kCommit);
  EXPECT_FALSE(AnswerTo(waits.ticket)->training.has_value());
  const Asked late = Arrive(first[3]);
  ASSERT_TRUE(late.reply.has_value());
  EXPECT_EQ(late.reply->next, Next::kCommit);
  EXPECT_THAT(TakenBack(), ElementsAre(AttemptOf(first[2]), AttemptOf(first[3])));
  EXPECT_THAT(EvaluateAll(), SizeIs(kOwners));
  EXPECT_THAT(judged_, ElementsAre(1));
  EXPECT_TRUE(ended_.has_value() && ended_->ok());
}

TEST_F(ArrivingAndEvaluating, WhereTheNextRoundWaitsForTheEvaluationTheyEvaluateFirst) {
  StartWith(/*rounds=*/3, {1, 3}, /*gates=*/true);
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  ASSERT_EQ(engine_->completed(), 1u);
  const std::vector<Attempt> trained = {AttemptOf(first[2]), AttemptOf(first[3])};
  for (const uint64_t owner : {first[2], first[3]}) {
    const Asked asked = Arrive(owner);
    ASSERT_TRUE(asked.reply.has_value());
    EXPECT_EQ(asked.reply->next, Next::kCommit);
  }
  EXPECT_THAT(EvaluateAll(), SizeIs(kOwners));
  EXPECT_THAT(judged_, ElementsAre(1));
  // Round 2 begins with four new clients. After it no evaluation is due, so who trains goes on.
  const std::vector<uint64_t> second = BeginAll();
  ASSERT_THAT(second, SizeIs(4));
  EXPECT_EQ(Count(second[0]), 0u);
  EXPECT_EQ(Count(second[1]), 0u);
  ASSERT_EQ(engine_->completed(), 2u);
  EXPECT_EQ(Count(second[2]), 1u);
  EXPECT_EQ(Count(second[3]), 1u);
  ASSERT_EQ(engine_->completed(), 3u);
  EXPECT_EQ(TakenBack(), trained);
}

TEST_F(ArrivingAndEvaluating, WhoHasEvaluatedAlreadyWaitsForTheNextRound) {
  StartWith(/*rounds=*/2, {1}, /*gates=*/true);
  const std::vector<uint64_t> first = BeginAll();
  Count(first[0]);
  Count(first[1]);
  const auto paused =
      engine_->Operate({.action = admin::Action::kPause, .by = "an operator"}, now_);
  ASSERT_TRUE(paused.answer.ok()) << paused.answer.status();
  Carry(paused.effects);
  const auto skipped = engine_->Operate(
      {.action = admin::Action::kSkipEvaluation, .by = "an operator", .round = 1}, now_);
  ASSERT_TRUE(skipped.answer.ok()) << skipped.answer.status();
  Carry(skipped.effects);
  const Asked asked = Arrive(first[2]);
  EXPECT_FALSE(asked.reply.has_value()) << "the run is paused, and it owes no evaluation";
  EXPECT_THAT(TakenBack(), IsEmpty());
}

TEST_F(ArrivingAndEvaluating, AServerThatEvaluatesTheLastRoundAgainLetsThemEvaluate) {
  EngineOptions options{.run = Run(), .epoch = 2, .workers = kOwners, .completed = 1};
  options.run.rounds = 1;
  options.run.evaluation.clients = true;
  options.lease_timeout = FromSeconds(kLease);
  options.evaluate_first = fixtures::BlobOf(Round(1), Phase(99));
  // Who trained when the earlier server died.
  const Attempt attempt{ClientId(2), Fence{.epoch = 1, .counter = 7}};
  Restored restored{.train_on = {{.attempt = attempt, .node = WorkerId(3)}}};
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    sessions_[owner] = SessionId(owner + 1);
    restored.members.push_back({.node = WorkerId(owner + 1),
                                .session = sessions_[owner],
                                .request = Owner(owner, ++incarnations_),
                                .table = TableOf(owner)});
  }
  restored.newest = WorkerId(kOwners);
  restored.begun = true;
  engine_.emplace(std::move(options), scheduler_);
  Carry(engine_->Resume(std::move(restored), now_));
  const Asked asked = Call(2, {.running = 1, .trained = {attempt}});
  ASSERT_TRUE(asked.reply.has_value());
  EXPECT_EQ(asked.reply->next, Next::kCommit);
  for (uint64_t owner = 0; owner < kOwners; ++owner) EXPECT_TRUE(Evaluate(owner)) << owner;
  EXPECT_THAT(judged_, ElementsAre(1));
  EXPECT_TRUE(ended_.has_value() && ended_->ok());
}

}  // namespace
}  // namespace macaw::server
