// Of whom the numbers of a round are, by the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "testing/temporary_folder.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::RowsOf;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::WithSettings;
using testing_support::WriteConfig;

// The sums of columns over the rounds.
nlohmann::json SumsOf(const Simulation& run) {
  nlohmann::json sums = nlohmann::json::object();
  for (const nlohmann::json& row : RowsOf(run)) {
    for (const auto& [name, value] : row.items()) {
      if (value.is_number()) sums[name] = sums.value(name, 0.0) + value.get<double>();
    }
  }
  return sums;
}

TEST(Statistics, StragglersOfOneEpochDoLessUnderEveryRuleAlike) {
  const std::string config = WriteConfig("stragglers");
  Simulation all("all", WithSettings(config, {"local.epochs=1", "local.batch_size=10"}));
  ASSERT_EQ(all.Wait(), 0) << all.output();
  std::vector<double> steps = {SumsOf(all)["steps"].get<double>()};
  for (const char* rule : {"fedavg", "fedprox", "fednova"}) {
    const std::vector<std::string> slow = {"local.epochs=1", "local.batch_size=10",
                                           "cohort.straggler_fraction=0.9",
                                           absl::StrCat("algorithm.name=", rule)};
    Simulation one(absl::StrCat("one-", rule), WithSettings(config, slow, {"--processes", "1"}));
    ASSERT_EQ(one.Wait(), 0) << one.output();
    EXPECT_NE(one.digest(), all.digest());
    steps.push_back(SumsOf(one)["steps"].get<double>());
    EXPECT_LT(steps.back(), 0.75 * steps[0]) << rule;
    EXPECT_EQ(steps.back(), steps[1]) << rule;
    Simulation owners(absl::StrCat("owners-", rule), WithSettings(config, slow, {"--owners", "3"}));
    ASSERT_EQ(owners.Wait(), 0) << owners.output();
    EXPECT_EQ(owners.digest(), one.digest()) << rule;
  }
}

TEST(Statistics, ClientsWithoutAStepAreNotInTheMean) {
  const std::string config = WriteConfig("drop-last");
  for (const char* rule : {"fedavg", "fednova", "scaffold"}) {
    const std::string name = absl::StrCat("algorithm.name=", rule);
    // Clients with thirty rows or more, and nothing of a batch that is not full.
    const std::vector<std::string> dropping = {name, "local.drop_last=true", "local.batch_size=30",
                                               "cohort.size=10"};
    Simulation one(absl::StrCat("one-", rule), WithSettings(config, dropping));
    ASSERT_EQ(one.Wait(), 0) << one.output();
    EXPECT_THAT(one.output(), HasSubstr("fewer training rows than a batch of 30"));
    const nlohmann::json sums = SumsOf(one);
    EXPECT_EQ(sums["left_out"], 0) << rule;
    EXPECT_EQ(sums["clients"], 30) << rule;
    EXPECT_GE(sums["steps"].get<double>(), 30) << rule;
    // The same clients by a key of their own.
    std::vector<std::string> same = dropping;
    same.push_back("cohort.min_rows=30");
    Simulation keyed(absl::StrCat("keyed-", rule), WithSettings(config, same));
    ASSERT_EQ(keyed.Wait(), 0) << keyed.output();
    EXPECT_EQ(keyed.digest(), one.digest()) << rule;
    Simulation owners(absl::StrCat("owners-", rule),
                      WithSettings(config, dropping, {"--owners", "3"}));
    ASSERT_EQ(owners.Wait(), 0) << owners.output();
    EXPECT_EQ(owners.digest(), one.digest()) << rule;
    if (!testing_support::kHasLibTorch) continue;
    std::vector<std::string> on_torch = dropping;
    on_torch.push_back("workers.backend=torch");
    Simulation torch(absl::StrCat("torch-", rule), WithSettings(config, on_torch));
    ASSERT_EQ(torch.Wait(), 0) << torch.output();
    EXPECT_EQ(SumsOf(torch)["steps"], sums["steps"]) << rule;
  }
}

// Six clients of 13 rows. The features of client 2 are in another unit, so that its steps diverge:
// after twenty of them its weights are finite, and its squared errors are beyond 1e50.
std::string OneOfSixDiverges(const testing_support::TemporaryFolder& folder) {
  std::string rows = "client,x0,x1,label\n";
  for (int i = 0; i < 6 * 13; ++i) {
    const double unit = i % 6 == 2 ? 100 : 1;
    const double x0 = unit * ((i * 7) % 11 / 11.0 - 0.5), x1 = unit * ((i * 5) % 13 / 13.0 - 0.5);
    absl::StrAppend(&rows, i % 6, ",", x0, ",", x1, ",", x0 - 2 * x1, "\n");
  }
  return folder.Write("diverges.toml", absl::StrCat(R"([run]
rounds = 3
task = "regression"
[data]
source = "csv"
path = ")",
                                                    folder.Write("rows.csv", rows), R"("
client_column = "client"
test_fraction = 0
[model]
layers = ["linear 1"]
[cohort]
size = 6
[local]
steps = 2
batch_size = 0
lr = 0.02
)"));
}

// Its update is clipped and thereby a legal one, however long it is.
TEST(Statistics, LeavesOutAClientWhoseLossIsFiniteAndBeyondTheLimit) {
  const testing_support::TemporaryFolder folder;
  const std::string config = OneOfSixDiverges(folder);
  const std::vector<std::vector<std::string>> clipped = {
      {"local.steps=20", "algorithm.fedavg.update_clip=1"},
      {"local.steps=20", "algorithm.fedavg.update_clip=1", "run.dtype=float64"},
      {"local.steps=20", "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.noise=0.01",
       "privacy.delta=1e-4", "cohort.sampling=poisson", "cohort.weight=uniform"}};
  for (const std::vector<std::string>& settings : clipped) {
    Simulation one("one", WithSettings(config, settings, {"--processes", "1"}));
    Simulation two("two", WithSettings(config, settings, {"--processes", "2"}));
    for (Simulation* const run : {&one, &two}) ASSERT_EQ(run->Wait(), 0) << run->output();
    EXPECT_EQ(two.digest(), one.digest());
    EXPECT_EQ(two.metrics(), one.metrics());
    for (const nlohmann::json& row : RowsOf(one)) {
      EXPECT_EQ(row["clients"], 5) << row;
      EXPECT_EQ(row["left_out"], 1) << row;
      EXPECT_LT(row["train_loss"], 10) << row;
    }
    for (const nlohmann::json& event : one.events()) {
      if (event["event"] != "left_out") continue;
      EXPECT_EQ(event["client"], 2) << event;
      EXPECT_THAT(event.dump(), HasSubstr("beyond 1e+50"));
    }
  }
}

TEST(Statistics, CountsAClientAsMissingWhoseTunedModelHasALossBeyondTheLimit) {
  const testing_support::TemporaryFolder folder;
  const std::string config = OneOfSixDiverges(folder);
  for (const char* steps : {"20", "30"}) {  // beyond the limit, and not finite
    Simulation run(
        "tuned", WithSettings(config, {"algorithm.fedavg.update_clip=1", "evaluation.clients=true",
                                       "data.client_test_fraction=0.2",
                                       absl::StrCat("evaluation.fine_tune.steps=", steps)}));
    ASSERT_EQ(run.Wait(), 0) << run.output();
    for (const nlohmann::json& row : RowsOf(run)) {
      EXPECT_EQ(row["left_out"], 0) << row;
      EXPECT_EQ(row["clients_test_missing"], 0) << row;
      EXPECT_EQ(row["clients_test_tuned_clients"], 5) << row;
      EXPECT_EQ(row["clients_test_tuned_missing"], 1) << row;
      EXPECT_LT(row["clients_test_tuned_loss"], 10) << row;
    }
  }
}

TEST(Statistics, NoBoundOfPrivacyIsADefenceAgainstAttackers) {
  const std::vector<std::string> keys = {"privacy.mechanism=gaussian", "privacy.clip=1",
                                         "privacy.noise=0.1",          "cohort.sampling=poisson",
                                         "cohort.weight=uniform",      "attack.kind=scaling",
                                         "attack.fraction=0.3",        "attack.scale=100"};
  Simulation run("hostile", WithSettings(WriteConfig("hostile"), keys));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const nlohmann::json sums = SumsOf(run);
  EXPECT_EQ(sums["left_out"], 0);
  EXPECT_GT(sums["rule_attackers"].get<double>(), 0);
  EXPECT_THAT(run.output(), AllOf(HasSubstr("do not clip"), HasSubstr("100 clips long")));
}

TEST(Statistics, RoundsThatDoNotWaitAreRefusedWithAPlannedCohort) {
  Simulation run(
      "enough", WithSettings(WriteConfig("enough"), {"cohort.sampling=poisson", "round.enough=3"}));
  EXPECT_EQ(run.Wait(), 2) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("round.enough"));
}

TEST(Statistics, PoissonCohortsAreRefusedWhereAKeySaysWhoMayBeDrawnBeforeTheRun) {
  for (const char* key : {"cohort.min_rows=3", "cohort.eligible=[\"*\"]"}) {
    Simulation run("few", WithSettings(WriteConfig("few"), {"cohort.sampling=poisson", key}));
    EXPECT_EQ(run.Wait(), 2) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("poisson")) << key;
  }
}

TEST(Statistics, CountsTheClientsThatAColumnIsOf) {
  Simulation run("counts", WithSettings(WriteConfig("counts"), {"data.client_test_fraction=0.01",
                                                                "evaluation.clients=true"}));
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const nlohmann::json final = run.summary()["final"];
  const auto clients = final["clients_test_clients"].get<int>();
  EXPECT_TRUE(clients > 20 && clients < 200) << clients;
  EXPECT_EQ(final["clients_test_missing"], 0);
  EXPECT_THAT(run.output(), HasSubstr(absl::StrCat(200 - clients, " of 200 clients that train")));
  EXPECT_FALSE(run.summary()["bests"].contains("clients_test_clients"));
}

TEST(MacawPrivacy, FindsTheNoiseOfASmallEpsilonAndSaysWhatPromisesNothing) {
  const std::string about = "privacy --clients 1000 --cohort 100 --rounds 100 ";
  for (const char* epsilon : {"0.002"}) {
    const auto found = RunMacaw(absl::StrCat(about, "--delta 1e-5 --epsilon ", epsilon));
    EXPECT_EQ(found.exit, 0) << found.text;
    EXPECT_THAT(found.text, AllOf(HasSubstr("noise = "), Not(HasSubstr("below 1 / clients"))));
  }
  for (const char* delta : {"0.5", "0.001"}) {
    const auto said = RunMacaw(absl::StrCat(about, "--noise 1 --delta ", delta));
    EXPECT_EQ(said.exit, 0) << said.text;
    EXPECT_THAT(said.text, HasSubstr("delta is not below 1 / clients = 0.001"));
  }
}

}  // namespace
}  // namespace macaw
