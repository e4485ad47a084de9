// What `macaw simulate --estimate` says and leaves out, and what its trial changes of the run.
#include "cli/simulate/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cli/simulate/figures.h"
#include "cli/simulate/trial.h"

namespace macaw::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

CostEstimate Sample() {
  CostEstimate estimate{.rounds = 10, .population = 1234, .cohort = {5, 5}};
  estimate.work = {.rounds = 10,
                   .drawn = 10,
                   .turns = 50,
                   .steps = 400,
                   .least_steps = 2,
                   .most_steps = 20,
                   .clients = 48};
  estimate.steps = 400;
  estimate.memory = {.model = 1000, .server = 2000, .sums = 4096};
  estimate.basis.slots = 2;
  return estimate;
}

TEST(EstimateText, LeavesOutWhatIsNotKnown) {
  const std::string text = EstimateText(Sample(), 1.5);
  EXPECT_THAT(text, HasSubstr("5 of 1,234 clients a round, 50 turns of clients in all, of 48 "));
  EXPECT_THAT(text, HasSubstr("400 in all, 8 a turn (by the plan 2 to 20)"));
  EXPECT_THAT(text, HasSubstr("bytes and time are not known"));
  for (const char* absent : {"bytes up", "states", "privacy", "peaks", "time  ", "devices"})
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  const nlohmann::ordered_json json = EstimateJson(Sample(), 1.5);
  EXPECT_EQ(json["event"], "estimate");
  EXPECT_TRUE(json["bytes_up"].is_null());
  EXPECT_TRUE(json["seconds"].is_null());
  EXPECT_TRUE(json["virtual_seconds"].is_null());
  EXPECT_TRUE(json["privacy"].is_null());
  EXPECT_EQ(json["steps"]["client"], 8);
}

TEST(EstimateText, SaysWhereTheRoundsOfASweepDiffer) {
  CostEstimate estimate = Sample();
  EXPECT_EQ(EstimateJson(estimate, 1.5)["least_cohort"], 5);
  estimate.cohort = {4, 5};
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("10; 4 or 5 of 1,234 clients a round"));
  EXPECT_EQ(EstimateJson(estimate, 1.5)["cohort"], 5);
  EXPECT_EQ(EstimateJson(estimate, 1.5)["least_cohort"], 4);
}

TEST(EstimateText, SaysWhatTheRunMovesAndTakes) {
  CostEstimate estimate = Sample();
  estimate.up = {.client = 31400, .run = 31400.0 * 50};
  estimate.most_up = 40000;
  estimate.down = {.client = 999, .run = 999.0 * 50};
  estimate.states = {.client = 1500, .all = 1500 * 48};
  estimate.seconds = {.start = 0.5, .round = 30, .evaluation = 0.05, .evaluations = 10, .run = 301};
  estimate.epsilon = 1.25;
  estimate.delta = 1e-5;
  estimate.basis = {.rounds = 3, .cohort = 2, .turns = 6, .steps = 1, .slots = 2};
  const std::string text = EstimateText(estimate, 1.5);
  EXPECT_THAT(text,
              HasSubstr("31.4 kB a turn (40 kB without zeros), 157 kB a round, 1.57 MB in all"));
  EXPECT_THAT(text, HasSubstr("999 bytes a turn, 5 kB a round, 50 kB in all"));
  EXPECT_THAT(text, HasSubstr("1.5 kB a client, 72 kB for all 48 that train"));
  EXPECT_THAT(text, HasSubstr("about 5.02 min on 2 slots here: 0.5 s to begin, 30 s a round, 10 "
                              "evaluations of 50 ms"));
  EXPECT_THAT(text, HasSubstr("epsilon 1.25 at delta 1e-05 after 10 rounds"));
  EXPECT_THAT(text, HasSubstr("3 rounds of 2 clients with 1 step each"));
  EXPECT_EQ(EstimateJson(estimate, 1.5)["bytes_up"]["round"], 157000);
}

TEST(EstimateText, SaysWhatModelsWithoutAClientTake) {
  CostEstimate estimate = Sample();
  EXPECT_THAT(EstimateText(estimate, 1.5), testing::Not(HasSubstr("leave_one_out")));
  estimate.memory.one_out = 5'000'000;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("with evaluation.leave_one_out 5 MB more"));
  EXPECT_EQ(EstimateJson(estimate, 1.5)["memory"]["leave_one_out"], 5'000'000);
  EXPECT_THAT(EstimateText(estimate, 1.5), testing::Not(HasSubstr("unlearn")));
  estimate.memory.unlearn = 3'000'000;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("with evaluation.unlearn 3 MB more"));
  EXPECT_EQ(EstimateJson(estimate, 1.5)["memory"]["unlearn"], 3'000'000);
}

TEST(EstimateText, SaysWhatIsFetchedOnce) {
  CostEstimate estimate = Sample();
  EXPECT_THAT(EstimateText(estimate, 1.5), testing::Not(HasSubstr("frozen")));
  estimate.base = 12'300'000;
  EXPECT_THAT(EstimateText(estimate, 1.5),
              HasSubstr("base       12.3 MB of frozen tensors, to each device once"));
  EXPECT_EQ(EstimateJson(estimate, 1.5)["base"], 12'300'000);
}

TEST(EstimateText, SaysHoursOnTheDevices) {
  CostEstimate estimate = Sample();
  estimate.virtual_seconds = 9000;
  EXPECT_THAT(EstimateText(estimate, 1.5),
              HasSubstr("about 2.5 h on the clients' devices, 15 min a round (from all rounds)"));
  estimate.work.drawn = 4;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("(from 4 of the rounds)"));
  const nlohmann::ordered_json json = EstimateJson(estimate, 1.5)["virtual_seconds"];
  EXPECT_EQ(json["run"], 9000);
  EXPECT_EQ(json["round"], 900);
  EXPECT_EQ(json["from_rounds"], 4);
}

TEST(EstimateText, HasNoNumbersWithExponents) {
  CostEstimate estimate = Sample();
  estimate.steps = 50 * 12345.0;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("617,250 in all, 12,345 a turn"));
  estimate.steps = 50 * 9999.5;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("10,000 a turn"));
  estimate.virtual_seconds = 3.55e9;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("about 41,088 days on the clients' devices"));
  estimate.virtual_seconds = 400;
  EXPECT_THAT(EstimateText(estimate, 1.5), HasSubstr("about 6.67 min on the clients' devices"));
}

TEST(NumbersForPeople, HaveNoExponents) {
  const std::pair<double, const char*> durations[] = {
      {0, "0 ms"},      {0.0041, "4.1 ms"}, {0.0994, "99 ms"},  {0.0996, "100 ms"},
      {0.21, "0.21 s"}, {99.4, "99 s"},     {99.5, "100 s"},    {112, "112 s"},
      {119.9, "120 s"}, {120, "2 min"},     {301, "5.02 min"},  {7199.9, "120 min"},
      {7200, "2 h"},    {172799, "48 h"},   {172800, "2 days"}, {3.55e9, "41,088 days"}};
  for (const auto& [seconds, text] : durations) EXPECT_EQ(DurationText(seconds), text);
  const std::pair<double, const char*> sizes[] = {
      {0, "0 bytes"},     {999, "999 bytes"}, {999.7, "1 kB"},     {31400, "31.4 kB"},
      {999499, "999 kB"}, {999500, "1 MB"},   {15.7e6, "15.7 MB"}, {2.5e18, "2,500 PB"}};
  for (const auto& [bytes, text] : sizes) EXPECT_EQ(SizeText(bytes), text);
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1234567), "1,234,567");
}

TEST(TrialConfig, ReachesNothingBeyondItsFolder) {
  Config config;
  config.run.rounds = 2;
  config.run.cohort.size = 100;
  config.node.server.stop = {.metric = "test_accuracy", .at_least = 0.9};
  config.node.server.http = "127.0.0.1:8080";
  config.node.server.admin = "127.0.0.1:8081";
  config.node.server.round.enough = 90;
  config.run.evaluation.leave_one_out = 1;
  config.run.evaluation.unlearn = {3};
  config.node.track.to = {"mlflow"};
  config.node.state.store = "redis";
  config.node.state.url = "redis://elsewhere:6379";
  const Config trial = TrialConfig(config, {.cohort = 4});
  EXPECT_EQ(trial.run.cohort.size, 4u);
  EXPECT_GE(trial.run.rounds, 4u);  // rounds with and without an evaluation
  EXPECT_EQ(trial.run.local, config.run.local);
  EXPECT_FALSE(trial.node.server.stop.active());
  EXPECT_EQ(trial.run.evaluation.leave_one_out, 0u);
  EXPECT_TRUE(trial.run.evaluation.unlearn.empty());
  EXPECT_EQ(trial.node.server.round.enough, 4u);
  EXPECT_EQ(trial.node.server.admin, "off");
  EXPECT_EQ(trial.node.server.http, "");
  EXPECT_TRUE(trial.node.track.to.empty());
  EXPECT_EQ(trial.node.state.store, "disk");
  EXPECT_EQ(TrialConfig(config, {.cohort = 4, .steps = 3}).run.local.steps, 3u);
  config.run.privacy.mechanism = "gaussian";  // with the noise of the run's cohort
  EXPECT_EQ(TrialConfig(config, {.cohort = 4}).run.privacy.noise_cohort, 100u);
}

TEST(Trial, TellsAnEvaluationFromTheRoundsWithoutOne) {
  Trial trial;
  trial.rounds = {{.clients = 2, .steps = 8, .overhead = 9, .lag = 0.01},
                  {.clients = 2, .steps = 4, .overhead = 0.2, .lag = 0.51, .evaluated = true},
                  {.clients = 1, .steps = 3, .overhead = 0.4, .lag = 0.03}};
  EXPECT_EQ(trial.clients(), 5u);
  EXPECT_NEAR(trial.PerClient(&TriedRound::steps), 7.0 / 3, 1e-12);  // of rounds 2 and 3
  EXPECT_NEAR(trial.Overhead(), 0.3, 1e-12);                         // without the first round
  EXPECT_NEAR(*trial.Evaluation(), 0.49, 1e-12);
  trial.rounds.resize(1);
  EXPECT_FALSE(trial.Evaluation().has_value());
}

}  // namespace
}  // namespace macaw::cli
