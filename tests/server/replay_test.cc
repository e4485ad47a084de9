// Tests of a run that repeats another run from its log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::HistoryOf;
using fixtures::RunBytes;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::Summand;
using fixtures::TinyOptions;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

// Moves all clients of a part but the first `keep` to left_out, as if their training had failed.
fleet::CommitRequest WithoutSome(const FakeWorker& worker, fleet::CommitRequest request,
                                 size_t keep) {
  fleet::Part& part = *request.part;
  while (part.included.size() > keep) {
    part.left_out.push_back({.attempt = part.included.back().attempt, .message = "no memory"});
    part.included.pop_back();
  }
  std::vector<Summand> rest;
  for (const fleet::ClientRecord& record : part.included)
    rest.push_back({record.attempt.client, record.weight, record.multiplicity});
  part.sums = rest.empty() ? fleet::Blob() : worker.Sums(rest);
  return request;
}

// Takes all clients of a part but the first `keep` out of it, as if they were not trained yet.
fleet::CommitRequest OnlyTheFirst(const FakeWorker& worker, fleet::CommitRequest request,
                                  size_t keep) {
  fleet::CommitRequest rest = WithoutSome(worker, std::move(request), keep);
  rest.part->left_out.clear();
  return rest;
}

// Four rounds. In round 2, two clients cannot be trained. In round 3, no client can be trained.
void RunWithMisfortune(Options options) {
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(1);
  for (const size_t keep : {2, 0}) {
    const auto part = worker.WorkOnPart();
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(worker.Commit(WithoutSome(worker, *part, keep)).verdict, fleet::Verdict::kAccepted);
  }
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
}

Options Repeating(const log::History& history, const TemporaryFolder& folder) {
  Options options = TinyOptions(folder.path(), history.completed().value);
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  return options;
}

TEST(Replay, ClientsThatTheRunDidWithoutAreNotTrainedAndTheModelIsTheSame) {
  const TemporaryFolder first, again, undisturbed;
  RunWithMisfortune(TinyOptions(first.path(), 4));
  const log::History recorded = HistoryOf(first);
  EXPECT_EQ(recorded.decisions().size(), 2u);
  EXPECT_EQ(recorded.decisions().at({Round(3), Phase(0)}).given_up.size(), 4u);
  Finish(Repeating(recorded, again));  // with an honest worker, which could train all clients
  EXPECT_EQ(log::FirstDifference(recorded, HistoryOf(again)), std::nullopt);
  EXPECT_EQ(RunBytes(first.path()).model, RunBytes(again.path()).model);

  Finish(TinyOptions(undisturbed.path(), 4));
  const auto difference = log::FirstDifference(recorded, HistoryOf(undisturbed));
  ASSERT_TRUE(difference.has_value()) << "without the decisions it is another model";
  EXPECT_THAT(*difference, HasSubstr("round 2"));
}

// Four rounds. Round 2 ends with the first three of its four clients. In round 3 only two clients
// can be trained, so it is dropped.
TEST(Replay, RoundsThatEndedEarlyOrWereDroppedAreRepeatedFromTheLog) {
  const TemporaryFolder first, again;
  Options options = TinyOptions(first.path(), 4);
  options.config.round = {
      .quorum = 0.75, .enough = 3, .below_quorum = RoundRules::BelowQuorum::kDrop};
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(1);
    const auto second = worker.WorkOnPart();
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(worker.Commit(OnlyTheFirst(worker, *second, 3)).verdict, fleet::Verdict::kAccepted);
    const auto third = worker.WorkOnPart();
    ASSERT_TRUE(third.has_value());
    EXPECT_EQ(third->part->round, Round(3));
    EXPECT_EQ(worker.Commit(WithoutSome(worker, *third, 2)).verdict, fleet::Verdict::kAccepted);
    worker.RunToEnd();
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  const log::History recorded = HistoryOf(first);
  const log::Decisions decisions = recorded.decisions();
  ASSERT_EQ(decisions.at({Round(2), Phase(0)}).given_up.size(), 1u);
  EXPECT_EQ(decisions.at({Round(2), Phase(0)}).given_up[0].reason,
            fleet::LeftOutReason::kNotNeeded);
  EXPECT_TRUE(decisions.at({Round(3), Phase(0)}).dropped);
  EXPECT_EQ(recorded.rounds().at(Round(3)).at(Phase(0)).closed->counted, 0u);
  // The model does not move in a round that is dropped, so round 4 begins with the same one.
  EXPECT_EQ(recorded.rounds().at(Round(3)).at(Phase(0)).opened.broadcast,
            recorded.rounds().at(Round(4)).at(Phase(0)).opened.broadcast);
  Options repeating = Repeating(recorded, again);
  repeating.config.round = options.config.round;  // has no effect
  Finish(repeating);
  EXPECT_EQ(log::FirstDifference(recorded, HistoryOf(again)), std::nullopt);
  EXPECT_EQ(RunBytes(first.path()).model, RunBytes(again.path()).model);
}

TEST(Replay, TheFirstRoundThatDiffersIsNamed) {
  const TemporaryFolder first, shorter;
  Finish(TinyOptions(first.path(), 3));
  const log::History recorded = HistoryOf(first);
  EXPECT_EQ(log::FirstDifference(recorded, recorded), std::nullopt);
  {
    const TemporaryFolder folder;
    Options options = TinyOptions(folder.path(), 3);
    options.run.cohort.seed += 1;
    Finish(options);
    EXPECT_THAT(log::FirstDifference(recorded, HistoryOf(folder)).value_or(""),
                HasSubstr("round 1: another cohort"));
  }
  Finish(TinyOptions(shorter.path(), 2));
  EXPECT_THAT(log::FirstDifference(recorded, HistoryOf(shorter)).value_or(""),
              HasSubstr("round 3"));
}

TEST(Replay, CannotBeGoneOnWithAsAnOrdinaryRun) {
  const TemporaryFolder first, again;
  Finish(TinyOptions(first.path(), 2));
  Finish(Repeating(HistoryOf(first), again));
  Options options = TinyOptions(again.path(), 3);
  options.resume = true;
  const absl::Status refused = StartError(options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("macaw replay"));
}

}  // namespace
}  // namespace macaw::server
