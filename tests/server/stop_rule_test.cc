#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

// Tests of the stop rule.
namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::FakeWorker;
using testing_support::Finish;
using testing_support::Lines;
using testing_support::RunBytes;
using testing_support::Slurp;
using testing_support::StartError;
using testing_support::StartTiny;
using testing_support::TemporaryFolder;
using testing_support::TinyOptions;
using Json = nlohmann::json;

// Runs with these accuracies after rounds 1, 2, …. Before that, interrupts and resumes the run in
// each round of `interruptions`.
Outcome RunWithRule(const std::string& run_dir, const StopRule& rule,
                    const std::vector<double>& accuracies,
                    const std::vector<uint32_t>& interruptions = {}) {
  Options options = TinyOptions(run_dir, static_cast<uint32_t>(accuracies.size()));
  options.config.stop = rule;
  const auto accuracy = [&](Round round) { return accuracies.at(round.value - 1); };
  for (const uint32_t round : interruptions) {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    worker.accuracy = accuracy;
    EXPECT_TRUE(worker.Register().ok());
    worker.RunThrough(round);
    coordinator->Interrupt();
    while (worker.Work().has_value()) {
    }
    EXPECT_TRUE(coordinator->Wait().ok());
    options.resume = true;
  }
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  worker.accuracy = accuracy;
  EXPECT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  const auto outcome = coordinator->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

TEST(StopRule, EndsTheRunWhenTheMetricIsGoodEnough) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.7};
  const Outcome outcome = RunWithRule(folder.path(), rule, {0.1, 0.6, 0.7, 0.9, 0.9});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kStopped);
  EXPECT_EQ(outcome.rounds, 3u);
  EXPECT_THAT(outcome.reason, AllOf(HasSubstr("test_accuracy"), HasSubstr("0.7")));
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["end"], "stopped");
  EXPECT_EQ(summary["reason"], outcome.reason);
  EXPECT_EQ(summary["best"]["round"], 3);
  EXPECT_EQ(Lines(folder / "metrics.jsonl").size(), 3u);
}

TEST(StopRule, EndsTheRunWhenPatienceRunsOutAlsoAcrossAResume) {
  const StopRule rule{.metric = "test_accuracy", .patience = 3};
  const std::vector<double> accuracies = {0.2, 0.5, 0.4, 0.5, 0.3, 0.9, 0.9};
  const TemporaryFolder whole;
  const Outcome outcome = RunWithRule(whole.path(), rule, accuracies);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kStopped);
  EXPECT_EQ(outcome.rounds, 5u) << "rounds 3, 4 and 5 are no better than 2";
  for (uint32_t round = 1; round <= 4; ++round) {
    const TemporaryFolder parts;
    EXPECT_EQ(RunWithRule(parts.path(), rule, accuracies, {round}).rounds, 5u) << round;
    EXPECT_EQ(RunBytes(whole.path()), RunBytes(parts.path())) << round;
  }
  const TemporaryFolder often;
  EXPECT_EQ(RunWithRule(often.path(), rule, accuracies, {2, 3, 4}).rounds, 5u);
}

TEST(StopRule, LetsARunFinishThatNeverGetsThere) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.99};
  const Outcome outcome = RunWithRule(folder.path(), rule, {0.1, 0.2, 0.3});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.rounds, 3u);
}

TEST(StopRule, DoesNotLetAStoppedRunBeResumedUnderTheSameRule) {
  const TemporaryFolder folder;
  const StopRule rule{.metric = "test_accuracy", .at_least = 0.5};
  EXPECT_EQ(RunWithRule(folder.path(), rule, {0.1, 0.6, 0.7, 0.9}).rounds, 2u);
  Options options = TinyOptions(folder.path(), 4);
  options.resume = true;
  options.config.stop = rule;
  EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr("stopped"), HasSubstr("run.stop")));
  options.config.stop.at_least = 0.65;
  EXPECT_EQ(Finish(options).rounds, 4u) << "another rule may carry it on";
}

TEST(StopRule, IsCheckedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.config.stop = {.metric = "test_acuracy", .patience = 2};
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("test_acuracy"), HasSubstr("test_accuracy")));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace macaw::server
