// Runs with hostile clients, by the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::RowsOf;
using testing_support::RunMacaw;
using testing_support::RunProgram;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WithSettings;
using testing_support::WriteConfig;

struct Kind {
  const char* attack;
  const char* rule;
};

TEST(Attacks, OfEachKindGiveTheSameBytesForAnyWorkers) {
  const std::string config = WriteConfig("attacks");
  std::set<std::string> digests;
  Simulation plain("plain", {config});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  digests.insert(plain.digest());
  for (const auto& [attack, rule] :
       {Kind{"label-flip", "fedavg"}, Kind{"sign-flip", "fedavg"}, Kind{"scaling", "fedavg"},
        Kind{"free-rider", "fedavg"}, Kind{"inner-product", "fedavg"}, Kind{"alie", "fedavg"},
        Kind{"inner-product", "median"}, Kind{"alie", "median"}, Kind{"min-max", "fedavg"},
        Kind{"min-sum", "geometric_median"}, Kind{"mimic", "median"}, Kind{"backdoor", "fedavg"},
        Kind{"backdoor", "norm_bound"}}) {
    const std::vector<std::string> settings = {absl::StrCat("attack.kind=", attack),
                                               "attack.fraction=0.3",
                                               absl::StrCat("algorithm.name=", rule)};
    Simulation one("one", WithSettings(config, settings, {"--processes", "1", "--slots", "1"}));
    ASSERT_EQ(one.Wait(), 0) << one.output();
    EXPECT_THAT(one.output(), HasSubstr("60 of 200 clients are hostile"));
    Simulation three("three", WithSettings(config, settings, {"--processes", "3", "--slots", "1"}));
    ASSERT_EQ(three.Wait(), 0) << three.output();
    EXPECT_EQ(three.digest(), one.digest()) << attack << " " << rule;
    EXPECT_EQ(three.metrics(), one.metrics()) << attack << " " << rule;
    EXPECT_TRUE(digests.insert(one.digest()).second) << attack << " " << rule;
    double attackers = 0;
    for (const nlohmann::json& row : RowsOf(one)) {
      attackers += row.at("rule_attackers").get<double>();
      EXPECT_EQ(row.contains("backdoor_success"), std::string(attack) == "backdoor");
    }
    EXPECT_GT(attackers, 0);
  }
  Simulation nobody("nobody", WithSettings(config, {"attack.kind=alie", "attack.fraction=0"}));
  ASSERT_EQ(nobody.Wait(), 0) << nobody.output();
  EXPECT_EQ(nobody.digest(), plain.digest());
}

TEST(Attacks, GoOnAfterAResumeWithTheSameClients) {
  const std::string config = WriteConfig("resumed", "[attack]\nkind = \"alie\"\nfraction = 0.3\n");
  Simulation whole("whole", {config});
  ASSERT_EQ(whole.Wait(), 0) << whole.output();
  Simulation begun("begun", {config, "--rounds", "2"});
  ASSERT_EQ(begun.Wait(), 0) << begun.output();
  Simulation resumed("again", {"--resume", begun.folder(), "--rounds", "3"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(resumed.digest(), whole.digest());
  Simulation other("other", {"--resume", begun.folder(), "--set", "attack.fraction=0.2"});
  EXPECT_NE(other.Wait(), 0);
  EXPECT_THAT(other.output(), HasSubstr("attack.fraction"));
}

// Hostile clients replace the model by one with a backdoor, and the server bounds what they reach.
TEST(Attacks, ABackdoorIsLearntAndANormBoundHoldsItBack) {
  const std::string config = WriteConfig(
      "backdoor",
      "[attack]\nkind = \"backdoor\"\nfraction = 0.2\nscale = 8.0\ntarget = 7\npoisoned = 0.5\n");
  const std::vector<std::string> base = {"partition.concentration=100",
                                         "partition.clients=20",
                                         "cohort.size=20",
                                         "run.rounds=8",
                                         "model.name=mlp",
                                         "local.lr=0.1"};
  const auto last = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> settings = base;
    settings.insert(settings.end(), more.begin(), more.end());
    Simulation simulation(name, WithSettings(config, settings));
    EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
    return RowsOf(simulation).back();
  };
  const nlohmann::json attacked = last("open", {});
  EXPECT_GT(attacked.at("backdoor_success").get<double>(), 0.8);
  const nlohmann::json honest = last("honest", {"attack.fraction=0.01"});  // nobody
  EXPECT_LT(honest.at("backdoor_success").get<double>(), 0.1);
  const nlohmann::json bounded =
      last("bounded", {"algorithm.name=norm_bound", "algorithm.norm_bound.bound=0.5"});
  EXPECT_LT(bounded.at("backdoor_success").get<double>(),
            attacked.at("backdoor_success").get<double>() - 0.2);
  EXPECT_GT(bounded.at("test_accuracy").get<double>(), 0.7);
}

TEST(Attacks, ABackdoorIsRefusedWhereItHasNoPlaceOrClass) {
  const std::string config =
      WriteConfig("refused", "[attack]\nkind = \"backdoor\"\nfraction = 0.2\n");
  for (const auto& [setting, word] :
       {std::pair("attack.target=10", "attack.target"),
        std::pair("attack.trigger=29", "attack.trigger"),
        std::pair("attack.poisoned=0", "attack.poisoned"), std::pair("attack.z=1", "attack.z")}) {
    Simulation simulation("refused", WithSettings(config, {setting}));
    EXPECT_EQ(simulation.Wait(), 2) << simulation.output();
    EXPECT_THAT(simulation.output(), HasSubstr(word));
  }
}

TEST(Attacks, AreForSimulations) {
  const std::string config =
      WriteConfig("plan", "[attack]\nkind = \"sign-flip\"\nfraction = 0.2\n");
  const TemporaryFolder folder;
  const auto plan = RunMacaw(absl::StrCat("plan ", config, " --out ", folder.path(), "/p.toml"));
  EXPECT_NE(plan.exit, 0);
  EXPECT_THAT(plan.text, HasSubstr("attack.kind"));
  const std::string authority = folder.path() + "/pki";
  ASSERT_EQ(RunMacaw("pki init --dir " + authority).exit, 0);
  const auto server =
      RunProgram(MACAW_BIN_DIR "/macaw-server",
                 absl::StrCat("--config ", config, " --run-dir ", folder.path(),
                              "/fleet --authority ", authority, " --listen 127.0.0.1:0"));
  EXPECT_EQ(server.exit, 2) << server.text;
  EXPECT_THAT(server.text, HasSubstr("attack.kind"));
  Simulation local("local", WithSettings(config, {"algorithm.name=local"}));
  EXPECT_EQ(local.Wait(), 2) << local.output();
  EXPECT_THAT(local.output(), HasSubstr("attack.kind"));
}

}  // namespace
}  // namespace macaw
