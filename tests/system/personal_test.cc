// What is evaluated where clients have models of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::RowsOf;
using testing_support::Simulation;
using testing_support::WriteConfig;

const std::vector<std::string> kMetrics = {"loss", "accuracy", "loss_mean", "accuracy_worst10"};

std::vector<std::string> Command(const std::string& rule, const std::string& processes) {
  return {WriteConfig("personal", R"(
[evaluation]
clients = true
splits = ["test", "validation"]
)"),
          "--processes",
          processes,
          "--slots",
          "1",
          "--set",
          "algorithm.name=" + rule,
          "--set",
          "data.client_test_fraction=0.2",
          "--set",
          "data.val_fraction=0.1"};
}

// Beside its personal models Ditto trains the global one as FedAvg does.
TEST(Personal, TheGlobalModelBesideDittosIsFedAvgs) {
  Simulation fedavg("fedavg", Command("fedavg", "1"));
  Simulation ditto("ditto", Command("ditto", "2"));
  ASSERT_EQ(fedavg.Wait(), 0) << fedavg.output();
  ASSERT_EQ(ditto.Wait(), 0) << ditto.output();
  ASSERT_EQ(ditto.digest(), fedavg.digest());
  const std::vector<nlohmann::json> common = RowsOf(fedavg), personal = RowsOf(ditto);
  ASSERT_EQ(common.size(), 3u);
  ASSERT_EQ(personal.size(), 3u);
  for (size_t round = 0; round < 3; ++round) {
    for (const std::string& metric : kMetrics) {
      const nlohmann::json& global = common[round]["clients_test_" + metric];
      ASSERT_TRUE(global.is_number()) << common[round];
      EXPECT_EQ(personal[round]["clients_test_global_" + metric], global) << metric;
      EXPECT_TRUE(personal[round]["clients_val_" + metric].is_number()) << metric;
    }
    EXPECT_FALSE(common[round].contains("clients_test_global_loss"));
  }
  EXPECT_NE(personal[2]["clients_test_loss"], personal[2]["clients_test_global_loss"]);
  EXPECT_NE(personal[2]["clients_val_loss"], common[2]["clients_val_loss"]);
}

// One round of FedAvg in which everybody trains from the model of round 1: a client's fine-tuned
// model after as many steps at the same rate is better on its rows than the common one; it is the
// same for any number of workers and leaves the run as it was.
TEST(Personal, FineTuningIsTestedBesideTheModelAndChangesNothing) {
  std::vector<std::string> tuned = Command("fedavg", "1");
  for (const char* set : {"evaluation.fine_tune.steps=30", "evaluation.fine_tune.lr=0.1"})
    tuned.insert(tuned.end(), {"--set", set});
  std::vector<std::string> by_two = tuned;
  by_two[2] = "2";
  Simulation plain("plain", Command("fedavg", "1")), one("one", tuned), two("two", by_two);
  for (Simulation* const run : {&plain, &one, &two}) ASSERT_EQ(run->Wait(), 0) << run->output();
  EXPECT_EQ(one.digest(), plain.digest());
  EXPECT_EQ(one.metrics(), two.metrics());
  const std::vector<nlohmann::json> before = RowsOf(plain), after = RowsOf(one);
  ASSERT_EQ(after.size(), 3u);
  for (size_t round = 0; round < 3; ++round) {
    EXPECT_EQ(after[round]["clients_test_loss"], before[round]["clients_test_loss"]);
    EXPECT_FALSE(before[round].contains("clients_test_tuned_loss"));
    EXPECT_GT(after[round]["clients_test_tuned_accuracy"], after[round]["clients_test_accuracy"]);
  }
  const testing_support::Printed refused = testing_support::RunMacaw(
      "simulate " + WriteConfig("refused") + " --check --set evaluation.fine_tune.steps=3");
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.text, testing::HasSubstr("set evaluation.clients = true"));
}

// The floor and the ceiling: a client has few rows of its own, and one model fits all clients.
TEST(Personal, LocalTrainingHasNoCommonModelAndPooledTrainingOneClient) {
  Simulation local("local", Command("local", "2")), pooled("pooled", Command("pooled", "2"));
  ASSERT_EQ(local.Wait(), 0) << local.output();
  ASSERT_EQ(pooled.Wait(), 0) << pooled.output();
  for (const nlohmann::json& row : RowsOf(local)) {
    EXPECT_TRUE(row["clients_test_loss"].is_number());
    EXPECT_GT(row["rule_distance"], 0);
    EXPECT_FALSE(row.contains("test_loss"));
    EXPECT_FALSE(row.contains("clients_test_global_loss"));
  }
  EXPECT_EQ(local.summary()["best"]["metric"], "clients_val_accuracy");
  const auto accuracy = [](const Simulation& run) {
    return run.summary()["final"]["clients_test_accuracy"].get<double>();
  };
  EXPECT_LT(accuracy(local), accuracy(pooled));
  for (const nlohmann::json& row : RowsOf(pooled)) {
    EXPECT_EQ(row["clients"], 1);
    EXPECT_GT(row["examples"], 1000);
    EXPECT_TRUE(row["clients_test_accuracy_worst10"].is_number());
    EXPECT_TRUE(row["test_loss"].is_number());
  }
  std::vector<std::string> tuned = Command("pooled", "1");
  tuned.insert(tuned.end(), {"--set", "evaluation.fine_tune.steps=30"});
  Simulation own("own", tuned);
  ASSERT_EQ(own.Wait(), 0) << own.output();
  // Each client is tuned on rows of its own, although one client trains on all of them.
  EXPECT_EQ(own.digest(), pooled.digest());
  EXPECT_GT(own.summary()["final"]["clients_test_tuned_accuracy"].get<double>(), accuracy(pooled));
  const testing_support::Printed heldout = testing_support::RunMacaw(
      "simulate " + WriteConfig("heldout") +
      " --check --set algorithm.name=pooled --set evaluation.heldout=true");
  EXPECT_EQ(heldout.exit, 2);
  EXPECT_THAT(heldout.text, testing::HasSubstr("one client has those of all"));
  const testing_support::Printed owners =
      testing_support::RunMacaw("simulate " + WriteConfig("owners") +
                                " --check --set algorithm.name=pooled "
                                "--set workers.owners=2");
  EXPECT_EQ(owners.exit, 2);
  EXPECT_THAT(owners.text, testing::HasSubstr("workers.owners must be 0"));
  const testing_support::Printed plan = testing_support::RunMacaw(
      "plan " + WriteConfig("plan") + " --set algorithm.name=pooled --out /tmp/never.toml");
  EXPECT_EQ(plan.exit, 2);
  EXPECT_THAT(plan.text, testing::HasSubstr("it is for simulations"));
}

TEST(Personal, ModelsDecideWhichRoundIsTheBest) {
  Simulation ditto("ditto", Command("ditto", "1"));
  ASSERT_EQ(ditto.Wait(), 0) << ditto.output();
  // Validation rows decide, at the point that the rule names; test rows are reported.
  EXPECT_EQ(ditto.summary()["best"]["metric"], "clients_val_accuracy");
  EXPECT_TRUE(ditto.summary()["best"]["report"].contains("clients_test_accuracy"));
  EXPECT_TRUE(ditto.summary()["bests"].contains("clients_val_accuracy"));
  EXPECT_TRUE(ditto.summary()["bests"].contains("clients_test_global_accuracy"));
  Simulation fedavg("fedavg", Command("fedavg", "1"));
  ASSERT_EQ(fedavg.Wait(), 0) << fedavg.output();
  EXPECT_EQ(fedavg.summary()["best"]["metric"], "clients_val_accuracy");
  EXPECT_TRUE(fedavg.summary()["best"]["report"].contains("test_accuracy"));
}

}  // namespace
}  // namespace macaw
