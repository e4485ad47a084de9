// What is evaluated beside the loss and the accuracy of those who train: metrics of classes, and
// clients that join later.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/files.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::Simulation;
using testing_support::WriteConfig;

nlohmann::json Final(const Simulation& run) { return run.summary()["final"]; }

std::vector<std::string> Command(const std::string& name, const std::string& processes,
                                 const std::string& evaluation,
                                 const std::vector<std::string>& settings) {
  std::vector<std::string> command = {WriteConfig("heldout-" + name, "[evaluation]\n" + evaluation),
                                      "--processes", processes, "--slots", "1"};
  for (const std::string& setting : settings) {
    command.push_back("--set");
    command.push_back(setting);
  }
  return command;
}

constexpr char kEvaluation[] = R"(
clients = true
heldout = true
fine_tune = {steps = 3}
metrics = ["balanced_accuracy", "f1", "auc", "confusion"]
)";
const std::vector<std::string> kHeldout = {"data.client_test_fraction=0.2",
                                           "data.heldout_clients=0.4"};

TEST(Heldout, ClientsAreReportedBeforeAndAfterTheyJoin) {
  std::vector<std::string> tuning = kHeldout;
  tuning.push_back("data.heldout_tuning=0.5");
  Simulation one("one", Command("one", "1", kEvaluation, tuning));
  Simulation two("two", Command("two", "2", kEvaluation, tuning));
  Simulation plain("plain", Command("plain", "1", "clients = true\n", kHeldout));
  for (Simulation* run : {&one, &two, &plain}) ASSERT_EQ(run->Wait(), 0) << run->output();

  EXPECT_EQ(one.metrics(), two.metrics());
  EXPECT_EQ(*ReadFile(one.folder() + "/confusion.json"),
            *ReadFile(two.folder() + "/confusion.json"));
  EXPECT_EQ(one.digest(), plain.digest()) << "nobody else trains";
  const nlohmann::json final = Final(one);
  for (const char* column :
       {"heldout_test_accuracy", "heldout_test_tuned_auc", "heldout_test_tuned_f1_worst10",
        "clients_test_balanced_accuracy", "clients_test_tuned_loss", "test_f1"}) {
    ASSERT_TRUE(final.contains(column)) << column;
    EXPECT_TRUE(final[column].is_number()) << column;
  }
  EXPECT_NE(final["heldout_test_tuned_loss"], final["heldout_test_loss"]);
  EXPECT_FALSE(Final(plain).contains("heldout_test_loss"));
  EXPECT_FALSE(Final(plain).contains("test_f1"));
  EXPECT_FALSE(FileExists(plain.folder() + "/confusion.json"));
  EXPECT_TRUE(one.summary()["bests"].contains("heldout_test_accuracy"));

  const nlohmann::json confusion =
      nlohmann::json::parse(*ReadFile(one.folder() + "/confusion.json"));
  double rows = 0, correct = 0, recalls = 0;
  for (size_t c = 0; c < 10; ++c) {
    correct += confusion["test"]["confusion"][c][c].get<double>();
    for (const nlohmann::json& entry : confusion["test"]["confusion"][c])
      rows += entry.get<double>();
    recalls += confusion["test"]["recall"][c].get<double>();
  }
  EXPECT_DOUBLE_EQ(correct / rows, final["test_accuracy"].get<double>());
  EXPECT_DOUBLE_EQ(recalls / 10, final["test_balanced_accuracy"].get<double>());
}

TEST(Heldout, IsRefusedWhereItCannotBe) {
  const auto refused = [](const std::string& evaluation, const std::vector<std::string>& settings) {
    Simulation run("refused", Command("refused", "1", evaluation, settings));
    EXPECT_NE(run.Wait(), 0);
    return run.output();
  };
  EXPECT_NE(refused("heldout = true\n", {}).find("data.heldout_clients"), std::string::npos);
  EXPECT_NE(refused(kEvaluation, kHeldout).find("data.heldout_tuning"), std::string::npos);
  std::vector<std::string> unused = kHeldout;
  unused.push_back("data.heldout_tuning=0.5");
  EXPECT_NE(refused("heldout = true\n", unused).find("evaluation.fine_tune"), std::string::npos);
  EXPECT_NE(refused("metrics = [\"recal\"]\n", {}).find("balanced_accuracy"), std::string::npos);
}

}  // namespace
}  // namespace macaw
