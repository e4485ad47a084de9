// A run with durable commits that goes on inside a round, by a configuration that has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::HistoryOf;
using fixtures::Lines;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

constexpr uint32_t kDone = 3, kAll = 6;

Options DurableTiny(const std::string& run_dir) {
  Options options = TinyOptions(run_dir, kAll);
  options.config.durability = "commit";
  options.config.checkpoint_every = 10;
  return options;
}

// Runs a server that ends inside the round after `done`, before the first checkpoint.
void LeaveInsideARound(const Options& options, uint32_t done = kDone) {
  const auto server = StartTiny(options);
  FakeWorker worker(*server);
  ASSERT_TRUE(worker.Register().ok());
  worker.RunThrough(done);
  ASSERT_TRUE(worker.WorkOnPart().has_value());
  server->Suspend();
  ASSERT_TRUE(server->Wait().ok());
}

class ResumeInside : public testing::Test {
 protected:
  void SetUp() override { LeaveInsideARound(DurableTiny(folder_.path())); }

  Options Resumed(const std::function<void(Options&)>& change = {}) const {
    Options options = DurableTiny(folder_.path());
    options.resume = true;
    if (change) change(options);
    return options;
  }
  std::string Refusal(const std::function<void(Options&)>& change) const {
    return std::string(StartError(Resumed(change)).message());
  }
  void ExpectItGoesOn(const Options& options) {
    const TemporaryFolder whole;
    Finish(DurableTiny(whole.path()));
    EXPECT_EQ(Finish(options).rounds, kAll);
    EXPECT_EQ(RunBytes(folder_.path()), RunBytes(whole.path()));
  }

  const TemporaryFolder folder_;
};

TEST_F(ResumeInside, RefusesFewerRoundsThanItHasBegun) {
  EXPECT_THAT(Refusal([](Options& options) { options.run.rounds = kDone - 1; }),
              HasSubstr("has done its 3 rounds"));
  EXPECT_THAT(Refusal([](Options& options) { options.run.rounds = kDone; }),
              HasSubstr("is inside round 4"));
  ExpectItGoesOn(Resumed());
}

TEST_F(ResumeInside, RefusesAnotherConfigurationAlsoBeforeTheFirstCheckpoint) {
  for (const std::function<void(Options&)>& change :
       std::initializer_list<std::function<void(Options&)>>{
           [](Options& options) { ++options.run.seed; },
           [](Options& options) { options.run.cohort.size = 3; },
           [](Options& options) { options.run.evaluation.every = 2; }}) {
    EXPECT_THAT(Refusal(change), AllOf(HasSubstr("cannot resume"), HasSubstr("its 3 rounds"),
                                       HasSubstr("another configuration")));
  }
  ExpectItGoesOn(Resumed());
}

TEST_F(ResumeInside, TakesAnotherNumberOfRoundsBetweenCheckpoints) {
  ExpectItGoesOn(Resumed([](Options& options) { options.config.checkpoint_every = 2; }));
}

// Checkpoints are written while rounds are done again from parts that lie in one file.
TEST(ResumeInsideALongRun, TakesMoreFrequentCheckpointsAlsoIfItIsKilledAgain) {
  for (const uint32_t every : {1, 2, 3}) {
    const TemporaryFolder whole, folder;
    Options options = DurableTiny(whole.path());
    options.run.rounds = 10;
    Finish(options);
    options.run_dir = folder.path();
    LeaveInsideARound(options, 8);
    options.resume = true;
    options.config.checkpoint_every = every;
    {
      const auto server = StartTiny(options);
      FakeWorker worker(*server);
      ++worker.identity().incarnation;
      ASSERT_TRUE(worker.Register().ok());
      ASSERT_TRUE(worker.WorkOnPart().has_value());  // of round 9
      server->Suspend();
      ASSERT_TRUE(server->Wait().ok());
    }
    EXPECT_EQ(HistoryOf(folder).sessions().back().completed, Round(8)) << every;
    EXPECT_EQ(Finish(options).rounds, 10u) << every;
    EXPECT_TRUE(HistoryOf(folder).sessions().back().goes_on);
    EXPECT_EQ(RunBytes(folder.path()), RunBytes(whole.path())) << every;
  }
}

// Without a rule that may end the run, a round begins before the metrics of the one before.
TEST_F(ResumeInside, RefusesARuleThatWouldHaveHadToJudgeBefore) {
  EXPECT_THAT(Refusal([](Options& options) { options.config.budget.bytes_down = 1e9; }),
              AllOf(HasSubstr("with run.stop or run.budget"), HasSubstr("Resume it without them")));
  ExpectItGoesOn(Resumed());
}

TEST_F(ResumeInside, CountsTheTimeThatTheRoundsHaveTaken) {
  const double before =
      nlohmann::json::parse(Lines(folder_ / "events.jsonl").back())["t"].get<double>();
  EXPECT_GT(before, 0);
  Finish(Resumed());
  EXPECT_GE(nlohmann::json::parse(Slurp(folder_ / "summary.json"))["seconds"].get<double>(),
            before);
  double last = 0;
  for (const std::string& line : Lines(folder_ / "events.jsonl")) {
    const double now = nlohmann::json::parse(line)["t"].get<double>();
    EXPECT_GE(now, last) << line;
    last = now;
  }
}

TEST(ResumeInsideWithABudget, RefusesASmallerOneThatWasSpentInAnEarlierRound) {
  const TemporaryFolder folder;
  Options options = DurableTiny(folder.path());
  options.config.budget.bytes_down = 1e9;
  LeaveInsideARound(options);
  options.resume = true;
  Options smaller = options;
  smaller.config.budget.bytes_down = 1;
  EXPECT_THAT(std::string(StartError(smaller).message()),
              AllOf(HasSubstr("run.budget would have ended"), HasSubstr("after round 1")));
  EXPECT_EQ(Finish(options).rounds, kAll);
}

}  // namespace
}  // namespace macaw::server
