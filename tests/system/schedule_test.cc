// Schedules of the learning rate, over whole runs: the last round counts, since what a summary, a
// comparison and a sweep show is its row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::RowsOf;
using testing_support::Simulation;
using testing_support::WriteConfig;

std::vector<std::string> Cosine(const std::vector<std::string>& set,
                                const std::string& rounds = "3") {
  std::vector<std::string> command = {
      WriteConfig("cosine"), "--rounds", rounds,
      "--clients",           "40",       "--set",
      "model.name=logistic", "--set",    "local.lr_schedule=cosine"};
  for (const std::string& key : set) command.insert(command.end(), {"--set", key});
  return command;
}

// A rate of 0 is a division by 0 in SCAFFOLD's option 2 and in q-FedAvg, and no training in others.
TEST(CosineOfARun, TrainsInTheLastRoundUnderEveryRule) {
  for (const std::string rule : {"fedavg", "scaffold", "qfedavg", "fednova", "feddyn"}) {
    Simulation run(rule, Cosine({"algorithm.name=" + rule}));
    ASSERT_EQ(run.Wait(), 0) << run.output();
    const std::vector<nlohmann::json> rows = RowsOf(run);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_NE(rows[2]["test_loss"], rows[1]["test_loss"]) << rule;
    EXPECT_EQ(rows[2].value("left_out", 0), 0) << rule << rows[2];
    EXPECT_THAT(run.output(), Not(HasSubstr("rate is 0"))) << rule;
  }
}

TEST(CosineOfARun, IsNotThatOfFineTuning) {
  const std::vector<std::string> tunes = {"evaluation.clients=true", "evaluation.fine_tune.steps=5",
                                          "data.client_test_fraction=0.2", "local.lr=0.05"};
  Simulation by_default("default", Cosine(tunes));
  std::vector<std::string> said = tunes;
  said.emplace_back("evaluation.fine_tune.lr=0.05");
  Simulation explicitly("explicitly", Cosine(said));
  for (Simulation* const run : {&by_default, &explicitly})
    ASSERT_EQ(run->Wait(), 0) << run->output();
  EXPECT_EQ(by_default.metrics(), explicitly.metrics());
  const nlohmann::json last = RowsOf(by_default).back();
  EXPECT_LT(last["clients_test_tuned_loss"], last["clients_test_loss"]) << last;
}

// Over more rounds, those that are done would have had other rates.
TEST(CosineOfARun, IsNotStretchedByAResumeWhichSaysSo) {
  Simulation run("run", Cosine({}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string metrics = run.metrics();
  Simulation more("more", {"--resume", run.folder(), "--rounds", "5"});
  EXPECT_EQ(more.Wait(), 2) << more.output();
  EXPECT_THAT(more.output(),
              AllOf(HasSubstr("local.lr_schedule"), HasSubstr("a cosine over the 3 rounds"),
                    HasSubstr("model.init=")));
  EXPECT_EQ(more.metrics(), metrics);
}

TEST(CosineOfARun, WithAFloorGoesOnAtItAndSaysSo) {
  Simulation run("run", Cosine({"local.lr_schedule.floor=0.5"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  Simulation more("more", {"--resume", run.folder(), "--rounds", "5"});
  ASSERT_EQ(more.Wait(), 0) << more.output();
  EXPECT_THAT(more.output(), AllOf(HasSubstr("local.lr_schedule"), HasSubstr("rounds 4 to 5")));
  Simulation whole("whole",
                   Cosine({"local.lr_schedule.floor=0.5", "local.lr_schedule.rounds=3"}, "5"));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  EXPECT_EQ(more.digest(), whole.digest());
}

TEST(CosineOfARun, WithRoundsOfItsOwnGoesOnAsIfNothingHadHappened) {
  Simulation run("run", Cosine({"local.lr_schedule.rounds=5"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  Simulation more("more", {"--resume", run.folder(), "--rounds", "5"});
  ASSERT_EQ(more.Wait(), 0) << more.output();
  Simulation whole("whole", Cosine({}, "5"));
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  EXPECT_EQ(more.digest(), whole.digest());
  EXPECT_EQ(more.metrics(), whole.metrics());
}

TEST(CosineOfARun, ThatEndsBeforeTheRunSaysFromWhichRoundOnNothingIsLearnt) {
  Simulation run("run", Cosine({"local.lr_schedule.rounds=2"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("local.lr_schedule: the rate is 0 from round 3 on"));
}

// The column `steps` is of all counted clients.
TEST(QuadraticStepsOfARun, AreTakenByEveryClient) {
  Simulation run("run", {WriteConfig("quadratic"), "--rounds", "4", "--clients", "40", "--set",
                         "model.name=logistic", "--set", "cohort.size=5", "--set", "local.lr=0.1",
                         "--set", "local.steps=3", "--set", "local.qsr=0.2", "--set",
                         "local.lr_schedule={kind=\"exponential\", gamma=0.5, warmup_rounds=1}"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("local.qsr: 3 local steps in round 1, 64 in round 4"));
  std::vector<int> steps;
  for (const nlohmann::json& row : RowsOf(run)) steps.push_back(row["steps"]);
  EXPECT_THAT(steps, testing::ElementsAre(5 * 3, 5 * 4, 5 * 16, 5 * 64));
  Simulation replay("again", {"--resume", run.folder(), "--rounds", "5"});
  ASSERT_EQ(replay.Wait(), 0) << replay.output();
  EXPECT_EQ(RowsOf(replay).back()["steps"], 5 * 256);
}

}  // namespace
}  // namespace macaw
