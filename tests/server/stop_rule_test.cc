#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "algorithms/mean_delta.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

// Tests of the stop rule.
namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::Lines;
using fixtures::Registry;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyModel;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

// Runs to the end. Before that, interrupts and resumes the run in each round of `interruptions`.
Outcome RunInPieces(Options options, const algorithms::Registry& registry,
                    const std::function<double(Round)>& accuracy,
                    const std::vector<uint32_t>& interruptions) {
  const auto start = [&] {
    auto coordinator = Coordinator::Start(options, TinyModel(), registry);
    EXPECT_TRUE(coordinator.ok()) << coordinator.status();
    return *std::move(coordinator);
  };
  for (const uint32_t round : interruptions) {
    const auto coordinator = start();
    FakeWorker worker(*coordinator);
    worker.accuracy = accuracy;
    worker.apart = options.run.evaluation.leave_one_out > 0;
    EXPECT_TRUE(worker.Register().ok());
    worker.RunThrough(round);
    coordinator->Interrupt();
    while (worker.Work().has_value()) {
    }
    EXPECT_TRUE(coordinator->Wait().ok());
    options.resume = true;
  }
  const auto coordinator = start();
  FakeWorker worker(*coordinator);
  worker.accuracy = accuracy;
  worker.apart = options.run.evaluation.leave_one_out > 0;
  EXPECT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  const auto outcome = coordinator->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

// Runs with these accuracies after rounds 1, 2, ….
Outcome RunWithRule(const std::string& run_dir, const StopRule& rule,
                    const std::vector<double>& accuracies,
                    const std::vector<uint32_t>& interruptions = {}) {
  Options options = TinyOptions(run_dir, static_cast<uint32_t>(accuracies.size()));
  options.config.stop = rule;
  return RunInPieces(
      options, Registry(), [&](Round round) { return accuracies.at(round.value - 1); },
      interruptions);
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
  EXPECT_EQ(summary["stopped_by"], "rule");
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

// Rounds that are evaluated for evaluation.leave_one_out alone do not count, so it changes nothing
// of when the run ends: not with a better value in them, and not with a worse one.
TEST(StopRule, LooksAtTheRoundsOfEvaluationEveryAlone) {
  const std::vector<double> accuracies = {0.9, 0.2, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1};
  const auto run = [&](const std::string& run_dir, uint32_t leave_one_out,
                       const std::vector<uint32_t>& interruptions) {
    Options options = TinyOptions(run_dir, 8);
    options.run.evaluation.every = 2;
    options.run.evaluation.leave_one_out = leave_one_out;
    options.config.stop = {.metric = "test_accuracy", .at_least = 0.5, .patience = 2};
    return RunInPieces(
        options, Registry(), [&](Round round) { return accuracies.at(round.value - 1); },
        interruptions);
  };
  const TemporaryFolder plain;
  const Outcome expected = run(plain.path(), 0, {});
  EXPECT_EQ(expected.kind, Outcome::Kind::kStopped);
  EXPECT_EQ(expected.rounds, 6u) << "rounds 4 and 6 are no better than 2";
  for (const std::vector<uint32_t>& interruptions : {std::vector<uint32_t>{}, {1}, {3}, {4}}) {
    const TemporaryFolder folder;
    const Outcome outcome = run(folder.path(), 1, interruptions);
    EXPECT_EQ(outcome.rounds, expected.rounds);
    EXPECT_EQ(outcome.reason, expected.reason);
    EXPECT_EQ(RunBytes(folder.path()).digest, RunBytes(plain.path()).digest);
    EXPECT_EQ(Slurp(folder / "model.best.safetensors"), Slurp(plain / "model.best.safetensors"));
    const Json summary = Json::parse(Slurp(folder / "summary.json"));
    EXPECT_EQ(summary["best"]["round"], summary["best_model"]["round"]);
    EXPECT_EQ(summary["bests"]["test_accuracy"]["round"], summary["best_model"]["round"]);
    EXPECT_EQ(summary["rounds_to"], Json::object()) << "no round that counts has 0.5";
  }
}

// FedAvg that counts a budget down, as a rule with differential privacy does.
class CountingDown final : public algorithms::MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<algorithms::AfterApply> Apply(const algorithms::ServerContext& context,
                                               aggregation::Aggregate aggregate) override {
    context.Report("epsilon", 0.5 * context.round.value);
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }
};

TEST(StopRule, EndsTheRunByAMetricOfTheAlgorithmsOwn) {
  algorithms::Description spending = **Registry().Find("fedavg");
  spending.name = "spending";
  spending.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<algorithms::Schema> {
    algorithms::Schema schema = algorithms::MeanDeltaSchema(setup);
    schema.metrics = {{"epsilon", std::nullopt}};
    return schema;
  };
  spending.server = algorithms::MakeServer<CountingDown>;
  algorithms::Registry registry;
  ASSERT_TRUE(registry.Add(spending).ok());

  // 1.5 are spent in round 3. The rule looks when the model is evaluated, so after round 4.
  for (const std::vector<uint32_t>& interruptions : {std::vector<uint32_t>{}, {3}}) {
    const TemporaryFolder folder;
    Options options = TinyOptions(folder.path(), 9);
    options.run.algorithm.name = "spending";
    options.run.evaluation.every = 2;
    options.config.stop = {.metric = "rule_epsilon", .at_least = 1.5};
    const Outcome outcome = RunInPieces(
        options, registry, [](Round) { return 0.5; }, interruptions);
    EXPECT_EQ(outcome.kind, Outcome::Kind::kStopped);
    EXPECT_EQ(outcome.rounds, 4u);
    EXPECT_THAT(outcome.reason, AllOf(HasSubstr("rule_epsilon"), HasSubstr("1.5")));
  }
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

// The rounds of a tiny run fetch equally much.
TEST(RunBudget, EndsTheRunAfterTheFirstEvaluatedRoundThatHasSpentItAlsoAcrossAResume) {
  const TemporaryFolder one;
  Finish(TinyOptions(one.path(), 1));
  const double of_a_round = Json::parse(Lines(one / "metrics.jsonl").back())["bytes_down"];
  ASSERT_GT(of_a_round, 0);
  const auto run = [&](const std::string& run_dir, double rounds, uint32_t every,
                       uint32_t leave_one_out, const std::vector<uint32_t>& interruptions) {
    Options options = TinyOptions(run_dir, 9);
    options.run.evaluation.every = every;
    options.run.evaluation.leave_one_out = leave_one_out;
    options.config.budget.bytes_down = rounds * of_a_round;
    return RunInPieces(
        options, Registry(), [](Round) { return 0.5; }, interruptions);
  };
  struct Case {
    double rounds;
    uint32_t every, ends;
  };
  for (const auto& [rounds, every, ends] :
       {Case{4, 1, 4}, {3.5, 1, 4}, {4, 2, 4}, {4.5, 2, 6}, {4, 3, 6}, {7, 5, 9}}) {
    const TemporaryFolder whole;
    const Outcome expected = run(whole.path(), rounds, every, 0, {});
    EXPECT_EQ(expected.rounds, ends) << rounds << ", " << every;
    if (ends == 9) continue;  // the last one
    EXPECT_EQ(expected.kind, Outcome::Kind::kStopped);
    EXPECT_THAT(expected.reason, AllOf(HasSubstr("bytes_down of all rounds are"),
                                       HasSubstr(absl::StrCat("after round ", ends))));
    for (const std::vector<uint32_t>& interruptions :
         {std::vector<uint32_t>{1}, {2}, {3}, {1, 2, 3}}) {
      const TemporaryFolder parts;
      const Outcome outcome = run(parts.path(), rounds, every, 0, interruptions);
      EXPECT_EQ(outcome.rounds, ends) << rounds << ", " << every;
      EXPECT_EQ(outcome.reason, expected.reason);
      EXPECT_EQ(RunBytes(parts.path()), RunBytes(whole.path()));
    }
    const TemporaryFolder told;
    EXPECT_EQ(run(told.path(), rounds, every, 1, {2}).rounds, ends) << "other rounds do not count";
  }
}

// Else a replay from the start, which has the rule in all rounds, would end there.
TEST(StopRule, RefusesAResumeWithARuleThatWouldHaveEndedTheRunEarlier) {
  const std::vector<double> accuracies = {0.2, 0.5, 0.4, 0.5, 0.3, 0.6, 0.6, 0.6};
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 6);
  const auto accuracy = [&](Round round) { return accuracies.at(round.value - 1); };
  EXPECT_EQ(RunInPieces(options, Registry(), accuracy, {}).rounds, 6u);
  options.run.rounds = 8;
  options.resume = true;
  options.config.stop = {.metric = "test_accuracy", .patience = 3};
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("run.stop would have ended the run"), HasSubstr("of round 2")));
  options.config.stop = {};
  options.config.budget.bytes_down = 1;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("run.budget would have ended the run"), HasSubstr("after round 1")));
  options.config.budget = {};
  options.config.stop = {.metric = "test_accuracy", .patience = 4};
  EXPECT_EQ(RunInPieces(options, Registry(), accuracy, {}).rounds, 8u);
}

TEST(RunBudget, StandsBesideAStopRuleAndALargerOneCarriesTheRunOn) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 6);
  options.config.stop = {.metric = "test_accuracy", .patience = 5};
  options.config.budget.bytes_down = 1;
  EXPECT_EQ(Finish(options).rounds, 1u);
  const Json summary = Json::parse(Slurp(folder / "summary.json"));
  EXPECT_EQ(summary["end"], "stopped");
  EXPECT_EQ(summary["best"]["metric"], "test_accuracy");
  options.resume = true;
  EXPECT_THAT(StartError(options).ToString(),
              AllOf(HasSubstr("stopped"), HasSubstr("bytes_down"), HasSubstr("run.budget")));
  options.config.budget.bytes_down.reset();
  EXPECT_EQ(Finish(options).rounds, 6u);
}

TEST(RunBudget, RefusesWhatNeverEndsTheRun) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 2);
  options.config.budget.virtual_seconds = 5;
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("needs [devices]"));
  options.config.budget = {.bytes_up = 5};
  options.run.evaluation.every = 0;
  EXPECT_THAT(StartError(options).ToString(), HasSubstr("evaluation.every"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
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
