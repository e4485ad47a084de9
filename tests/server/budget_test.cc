#include "server/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "algorithms/around/accountant.h"
#include "algorithms/around/channels.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::ChannelsOf;
using fixtures::FakeWorker;
using fixtures::Lines;
using fixtures::Slurp;
using fixtures::StartError;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

constexpr double kNoise = 2, kDelta = 1e-3;

Options PrivateOptions(const std::string& run_dir, uint32_t rounds, uint32_t every) {
  Options options = TinyOptions(run_dir, rounds);
  options.run.privacy = {.mechanism = "gaussian", .clip = 1000, .noise = kNoise, .delta = kDelta};
  options.run.cohort.sampling = "poisson";
  options.run.cohort.weight = WeightPolicy::kUniform;
  options.run.evaluation.every = every;
  return options;
}

// ε after so many rounds of that run, as its column has it.
double EpsilonAfter(uint32_t rounds) {
  return algorithms::Accountant(0.5, kNoise).RenyiEpsilon(rounds, kDelta);
}

TEST(Budget, IsTheLargestNumberOfRoundsWithinIt) {
  const TemporaryFolder folder;
  const RunPlan run = PrivateOptions(folder.path(), 20, 1).run;
  StopRule rule{.metric = "rule_epsilon", .at_least = EpsilonAfter(4) + 0.01};
  auto budget = BudgetOf(rule, run);
  ASSERT_TRUE(budget.ok() && budget->has_value()) << budget.status();
  EXPECT_EQ((*budget)->rounds, 4u);
  EXPECT_THAT((*budget)->reason, AllOf(HasSubstr("rule_epsilon"), HasSubstr("after round 4")));
  rule.at_least = EpsilonAfter(20);
  EXPECT_FALSE((*BudgetOf(rule, run)).has_value()) << "all rounds are within it";
  rule.at_least = EpsilonAfter(1) - 0.01;
  EXPECT_THAT(BudgetOf(rule, run).status().ToString(), HasSubstr("run.stop.at_least"));
  rule = {.metric = "test_accuracy", .at_least = 0.1};
  EXPECT_FALSE((*BudgetOf(rule, run)).has_value());
}

// The rule looks when a model is evaluated, and so overshot: by a round with every = 1, by more
// with every = 3.
TEST(Budget, APrivateRunEndsBeforeTheRoundThatWouldExceedIt) {
  const double budget = EpsilonAfter(5) - 0.01;
  for (const uint32_t every : {1u, 3u, 100u}) {
    const TemporaryFolder folder;
    Options options = PrivateOptions(folder.path(), 12, every);
    options.config.stop = {.metric = "rule_epsilon", .at_least = budget};
    const auto coordinator = StartTiny(options);
    ASSERT_NE(coordinator, nullptr);
    FakeWorker worker(*coordinator);
    worker.SendOn(ChannelsOf(options.run));
    ASSERT_TRUE(worker.Register().ok());
    worker.RunToEnd();
    const auto outcome = coordinator->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, Outcome::Kind::kStopped) << every;
    EXPECT_EQ(outcome->rounds, 4u) << every;
    EXPECT_THAT(outcome->reason, HasSubstr("would be"));
    const Json summary = Json::parse(Slurp(folder / "summary.json"));
    EXPECT_LE(summary["final"]["rule_epsilon"].get<double>(), budget) << every;
    EXPECT_TRUE(summary["final"].contains("test_accuracy")) << "its last round is evaluated";
    const double epsilon = summary["privacy"]["epsilon"];
    EXPECT_GT(epsilon, 0);
    EXPECT_LE(epsilon, summary["final"]["rule_epsilon"].get<double>()) << "by the tighter bound";
    EXPECT_EQ(summary["privacy"]["delta"], kDelta);
    EXPECT_EQ(summary["privacy"]["rounds"], 4);
    EXPECT_EQ(Lines(folder / "metrics.jsonl").size(), 4u);
    options.resume = true;
    EXPECT_THAT(StartError(options).ToString(), AllOf(HasSubstr("stopped"), HasSubstr("run.stop")));
    options.config.stop.at_least = EpsilonAfter(6) + 0.01;
    const auto further = StartTiny(options);
    ASSERT_NE(further, nullptr);
    FakeWorker again(*further);
    again.SendOn(ChannelsOf(options.run));
    ASSERT_TRUE(again.Register().ok());
    again.RunToEnd();
    EXPECT_EQ(further->Wait()->rounds, 6u) << "a larger budget carries it on";
  }
}

TEST(Budget, ARunThatIsNotPrivateHasNoEpsilonInItsSummary) {
  const TemporaryFolder folder;
  (void)fixtures::Finish(TinyOptions(folder.path(), 2));
  EXPECT_FALSE(Json::parse(Slurp(folder / "summary.json")).contains("privacy"));
}

}  // namespace
}  // namespace macaw::server
