// One population, divided in any way among workers and owners: the same bytes.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/random.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::TemporaryFolder;
using testing_support::WriteConfig;

struct OwnedBytes {
  std::string model, metrics, states;
  friend bool operator==(const OwnedBytes&, const OwnedBytes&) = default;
};

OwnedBytes OwnedBytesOf(const Simulation& simulation) {
  return {simulation.digest(), simulation.metrics(),
          simulation.summary().value("state_digest", std::string())};
}

struct Rule {
  const char* name;
  std::vector<std::string> settings;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

class Owners : public testing::TestWithParam<Rule> {
 protected:
  std::vector<std::string> With(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {config_};
    for (const std::string& setting : GetParam().settings)
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  OwnedBytes Run(const std::string& name, std::vector<std::string> more) const {
    Simulation simulation(name, With(std::move(more)));
    EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
    return OwnedBytesOf(simulation);
  }

 private:
  const std::string config_ = WriteConfig("owners", "[evaluation]\nclients = true\n");
};

TEST_P(Owners, AnyDivisionOfThePopulationGivesTheSameBytes) {
  const OwnedBytes one = Run("one", {"--processes", "1"});
  ASSERT_EQ(one.model.size(), 64u);
  EXPECT_EQ(Run("two", {"--processes", "2"}), one);
  EXPECT_EQ(Run("owners", {"--owners", "12"}), one);
  EXPECT_EQ(Run("mixed", {"--owners", "4", "--processes", "2"}), one);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Owners,
    testing::Values(
        Rule{"FedAvg",
             {"partition.clients=12", "cohort.size=6", "model.name=mlp", "data.client_noise=0.2"}},
        Rule{"LabelNoise",
             {"partition.clients=12", "cohort.size=6", "model.name=mlp", "data.label_noise=0.3",
              "data.label_noise_clients=0.5", "data.concept_shift=label-permutation"}},
        Rule{"Rotation",
             {"partition.clients=12", "cohort.size=6", "model.name=mlp",
              "data.concept_shift=rotation"}},
        Rule{"FrozenTensors",
             {"partition.clients=12", "cohort.size=6", "model.name=mlp", "algorithm.name=scaffold",
              R"(model.frozen=["1.*", "5.bias"])"}},
        Rule{"Ef21",
             {"partition.clients=12", "cohort.size=6", "model.name=mlp",
              R"(update.codec=["topk 0.1"])"}},
        Rule{
            "Scaffold",
            {"partition.clients=12", "cohort.size=6", "model.name=mlp", "algorithm.name=scaffold"}},
        Rule{
            "FedBN",
            {"partition.clients=12", "cohort.size=6", "algorithm.name=fedbn",
             R"(model.layers=["conv 4 3 pad 1", "batchnorm", "relu", "maxpool 4", "flatten", "linear 10"])"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(OwnersFolder, HoldsTheOwnersRowsAndNoOthers) {
  const TemporaryFolder folder;
  const std::string config = WriteConfig("rows");
  Simulation run("rows", {config, "--set", "partition.clients=12", "--set", "cohort.size=6",
                          "--rounds", "1", "--owners", "3"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  for (int owner = 0; owner < 3; ++owner) {
    const std::string file =
        absl::StrCat(run.folder(), "/owners/owner-", owner, "/data.safetensors");
    const std::string own = folder.Write(
        "own.toml", absl::StrCat("[data]\nsource = \"prepared\"\npath = \"", file, "\"\n"));
    const std::string info = RunMacaw("data info " + own).text;
    EXPECT_TRUE(std::regex_search(info, std::regex("\nclients +1\n"))) << info;
  }
  EXPECT_FALSE(std::filesystem::exists(run.folder() + "/owners/owner-3"));
}

void KillOwnersInEveryRound(const std::string& setting) {
  const std::vector<std::string> base = {WriteConfig("killed"),
                                         "--rounds",
                                         "12",
                                         "--set",
                                         "partition.clients=12",
                                         "--set",
                                         "cohort.size=6",
                                         "--set",
                                         "model.name=mlp",
                                         "--set",
                                         setting};
  Simulation quiet("quiet", base);
  ASSERT_EQ(quiet.Wait(), 0) << quiet.output();

  std::vector<std::string> arguments = base;
  arguments.insert(arguments.end(), {"--owners", "12", "--set", "emulation.pause_probability=1",
                                     "--set", "emulation.pause_seconds=0.2"});
  Simulation disturbed("disturbed", arguments);
  RandomStream random({.seed = 3});
  for (int round = 1; round <= 5; ++round) {
    if (!disturbed.WaitForANewRound()) break;
    const std::vector<pid_t> workers = disturbed.Children("macaw-worker");
    for (int kill = 0; kill < 2 && !workers.empty(); ++kill)
      ::kill(workers[random.Below(workers.size())], SIGKILL);
  }
  ASSERT_EQ(disturbed.Wait(), 0) << disturbed.output();
  int lost = 0;
  for (const auto& event : disturbed.events()) lost += event["event"] == "worker_lost" ? 1 : 0;
  EXPECT_GT(lost, 0);
  EXPECT_EQ(OwnedBytesOf(disturbed), OwnedBytesOf(quiet));
}

TEST(OwnersFault, OwnersThatAreKilledComeBackUnderTheirNameAndChangeNothing) {
  KillOwnersInEveryRound("algorithm.name=scaffold");
}

TEST(OwnersFault, OwnersThatAreKilledKeepWhatTheySentUnderEf21) {
  KillOwnersInEveryRound(R"(update.codec=["topk 0.1"])");
}

// The process of an owner's worker; -1: there is none.
pid_t WorkerOf(const Simulation& simulation, const std::string& owner) {
  for (const pid_t pid : simulation.Children("macaw-worker")) {
    const auto arguments = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (arguments.ok() && arguments->find("/" + owner + "/data") != std::string::npos) return pid;
  }
  return -1;
}

// The worker of owner-1 is killed after two rounds. Its store on disk, if it has one, is gone then.
// It goes on without its states. All clients begin anew after that round, since SCAFFOLD's c has
// what its clients had added, and the run is replayed to the same model and states.
void LoseTheStatesOfOneOwner(const std::string& store) {
  Simulation run(store, {WriteConfig(store),
                         "--rounds",
                         "16",
                         "--owners",
                         "4",
                         "--processes",
                         "1",
                         "--set",
                         "partition.clients=8",
                         "--set",
                         "cohort.size=8",
                         "--set",
                         "model.name=mlp",
                         "--set",
                         "algorithm.name=scaffold",
                         "--set",
                         "state.store=" + store,
                         "--set",
                         "emulation.pause_probability=1",
                         "--set",
                         "emulation.pause_seconds=0.25"});
  ASSERT_TRUE(run.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"] >= 2;
  })) << run.output();
  const pid_t killed = WorkerOf(run, "owner-1");
  ASSERT_GT(killed, 0);
  ::kill(killed, SIGKILL);
  if (store == "disk") {
    const std::string states = run.folder() + "/owners/owner-1/state";
    ASSERT_TRUE(std::filesystem::is_directory(states)) << states;
    std::filesystem::rename(states, states + "-gone");
  }
  ASSERT_EQ(run.Wait(), 0) << run.output();
  int lost = 0;
  for (const auto& event : run.events()) {
    if (event["event"] != "states_lost") continue;
    ++lost;
    EXPECT_EQ(event.value("then", ""), "all clients begin anew after the round");
  }
  EXPECT_EQ(lost, 1);
  const std::string log = ReadFile(run.folder() + "/logs/server.log").value_or("");
  EXPECT_NE(log.find("states_lost worker=owner-1"), std::string::npos) << log;
  EXPECT_NE(log.find(" no client has a state, and the sum begins at zero"), std::string::npos)
      << log;
  const std::string records = RunMacaw("log " + run.folder()).text;
  EXPECT_NE(records.find("all begin anew after the round"), std::string::npos) << records;
  EXPECT_FALSE(run.summary().value("state_digest", std::string()).empty());

  const std::string again = run.folder() + "-again";
  const testing_support::Printed replay = RunMacaw("replay " + run.folder() + " --out " + again +
                                                   " --set emulation.pause_probability=0");
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_NE(replay.text.find("same       16 rounds, and the same model: " + run.digest()),
            std::string::npos)
      << replay.text;
  const auto summary = nlohmann::json::parse(*ReadFile(again + "/summary.json"));
  EXPECT_EQ(summary.value("state_digest", ""), run.summary().value("state_digest", "none"));
}

TEST(OwnersFault, AnOwnerThatKeepsItsStatesInMemoryLosesItsOwnAndTheRunIsReplayed) {
  LoseTheStatesOfOneOwner("memory");
}

TEST(OwnersFault, AnOwnerWhoseStatesAreGoneFromItsDiskGoesOnWithoutAndTheRunIsReplayed) {
  LoseTheStatesOfOneOwner("disk");
}

void CloseARoundWithoutAStoppedOwner(const std::string& setting) {
  Simulation run("deadline", {WriteConfig("deadline"),
                              "--rounds",
                              "20",
                              "--owners",
                              "4",
                              "--set",
                              "partition.clients=5",
                              "--set",
                              "cohort.size=5",
                              "--set",
                              "model.name=mlp",
                              "--set",
                              setting,
                              "--set",
                              "emulation.pause_probability=1",
                              "--set",
                              "emulation.pause_seconds=0.3",
                              "--set",
                              "round.deadline=3",
                              "--set",
                              "round.quorum=0.2",
                              "--set",
                              "round.present_within=60"});
  ASSERT_TRUE(run.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"] >= 1;
  })) << run.output();
  const pid_t stopped = WorkerOf(run, "owner-2");
  ASSERT_GT(stopped, 0);
  ::kill(stopped, SIGSTOP);
  const bool closed = run.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "left_out" && event["client"] == 2;
  });
  ::kill(stopped, SIGCONT);
  ASSERT_TRUE(closed) << run.output();
  ASSERT_EQ(run.Wait(), 0) << run.output();

  const std::string again = run.folder() + "-again";
  const testing_support::Printed replay = RunMacaw("replay " + run.folder() + " --out " + again +
                                                   " --set emulation.pause_probability=0");
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_NE(replay.text.find("same       20 rounds, and the same model: " + run.digest()),
            std::string::npos)
      << replay.text;
  const auto summary = nlohmann::json::parse(*ReadFile(again + "/summary.json"));
  EXPECT_EQ(summary.value("state_digest", ""), run.summary().value("state_digest", "none"));
}

TEST(OwnersDeadline, ARoundClosesWithoutAStoppedOwnerAndIsReplayedToTheSameModel) {
  CloseARoundWithoutAStoppedOwner("algorithm.name=scaffold");
}

TEST(OwnersDeadline, AStoppedOwnersUpdateIsNotInWhatItSentUnderEf21) {
  CloseARoundWithoutAStoppedOwner(R"(update.codec=["topk 0.1"])");
}

TEST(OwnersInput, MoreOwnersThanClientsAreRefusedBeforeAnythingStarts) {
  Simulation run("many", {WriteConfig("many"), "--owners", "201"});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_NE(run.output().find("workers.owners is 201, but the data has 200 clients"),
            std::string::npos)
      << run.output();
}

}  // namespace
}  // namespace macaw
