// Rules whose clients send sums over their rows (ridge, kmeans, daef) while processes are killed:
// server, workers and owners inside a round, between its phases, and a fleet of devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"
#include "tests/system/state_runs.h"
#include "tests/system/sums_rules.h"

namespace macaw {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class SumsKilled : public testing::TestWithParam<SumsRule> {
 protected:
  // A round takes half a second and more, so that on any machine a signal finds it open.
  Settings Slowly(const Settings& more = {}) const {
    return Plus(Plus(GetParam().settings, Pauses("0.15")), more);
  }
  std::string Undisturbed(const Settings& more = {}) const {
    Simulation run("undisturbed", WithSettings(config_, Plus(GetParam().settings, more)));
    EXPECT_EQ(run.Wait(), 0) << run.output();
    EXPECT_EQ(run.digest().size(), 64u);
    return Text(run);
  }
  static std::string Text(const Simulation& run) {
    return absl::StrCat(run.digest(), "\n", StateBytesOf(run).states, "\n", run.metrics());
  }
  bool has_phases() const { return GetParam().name == "daef"; }
  // How many clients' parts show that a round is open, and of five a phase, in its second phase.
  int parts_inside() const { return has_phases() ? 6 : 1; }

  const TemporaryFolder folder_;
  const std::string config_ = SumsConfig(folder_);
};

// A condition for WaitForEvent: parts of the round with so many clients have been accepted, those
// of all its phases together.
auto Counted(const Simulation& run, uint32_t round, int clients) {
  return [&run, round, clients](const nlohmann::json&) {
    int counted = 0;
    for (const nlohmann::json& event : run.events()) {
      if (event["event"] == "part" && event["round"] == round)
        counted += event["clients"].get<int>();
    }
    return counted >= clients;
  };
}

// Of the lines of `macaw log --json`: in how many phases behind a round's first one a server was
// started or a node was lost.
int DisturbedLaterPhases(const std::string& folder) {
  const auto log = RunMacaw("log " + folder + " --json");
  EXPECT_EQ(log.exit, 0) << log.text;
  int disturbed = 0;
  bool later = false;
  for (const absl::string_view line : absl::StrSplit(log.text, '\n', absl::SkipEmpty())) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    const std::string kind = record["record"];
    if (kind == "round_opened") later = record["phase"] != 0;
    if (kind == "closed") later = false;
    if (later && (kind == "run_opened" || kind == "node_lost")) ++disturbed;
  }
  return disturbed;
}

// The round that is open at this moment.
uint32_t OpenRound(const Simulation& run) {
  uint32_t over = 0;
  for (const nlohmann::json& event : run.events()) {
    if (event["event"] == "round") over = std::max(over, event["round"].get<uint32_t>());
  }
  return over + 1;
}

// Each is killed once the first of five clients has counted, of daef's rounds in the second phase.
TEST_P(SumsKilled, AServerOrWorkerThatIsKilledInARoundChangesNothing) {
  const std::string undisturbed = Undisturbed({"run.rounds=10"});
  for (const char* program : {"macaw-server", "macaw-worker"}) {
    SCOPED_TRACE(program);
    Simulation run(program,
                   WithSettings(config_, Slowly({"run.rounds=10", "server.durability=commit"}),
                                {"--processes", "2", "--slots", "1"}));
    int killed = 0;
    for (uint32_t round = 1; killed < 3; round = std::max(round + 1, OpenRound(run))) {
      if (!run.WaitForEvent(Counted(run, round, parts_inside()))) break;
      const std::vector<pid_t> found = run.Children(program);
      if (!found.empty() && ::kill(found[0], SIGKILL) == 0) ++killed;
    }
    ASSERT_EQ(run.Wait(), 0) << run.output();
    EXPECT_EQ(killed, 3);
    EXPECT_GE(DisturbedLaterPhases(run.folder()), has_phases() ? 2 : 0);
    EXPECT_EQ(Text(run), undisturbed);
  }
}

// All processes at once, with a checkpoint a round and with a journal.
TEST_P(SumsKilled, ARunThatIsKilledWholeInARoundGoesOn) {
  const std::string undisturbed = Undisturbed({"run.rounds=24"});
  for (const char* durability : {"checkpoint", "commit"}) {
    SCOPED_TRACE(durability);
    std::string folder;
    {
      Simulation run(
          durability,
          WithSettings(config_,
                       Slowly({"run.rounds=24", absl::StrCat("server.durability=", durability)}),
                       {"--processes", "2", "--slots", "1"}));
      ASSERT_TRUE(run.WaitForEvent(Counted(run, 2, parts_inside()))) << run.output();
      std::vector<pid_t> children = run.Children("macaw-worker");
      for (const pid_t server : run.Children("macaw-server")) children.push_back(server);
      run.Signal(SIGKILL);
      EXPECT_EQ(run.Wait(), 128 + SIGKILL);
      EXPECT_TRUE(AllGone(children));
      folder = run.folder();
    }
    Simulation resumed(
        absl::StrCat(durability, "-resumed"),
        {"--resume", folder, "--processes", "1", "--set", "emulation.pause_probability=0"});
    ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
    EXPECT_EQ(Text(resumed), undisturbed);
  }
}

TEST_P(SumsKilled, OwnersThatAreKilledComeBackAndChangeNothing) {
  const Settings all = {"cohort.size=11", "run.rounds=9"};
  const std::string undisturbed = Undisturbed(all);
  // All of them work at the same time.
  Simulation run("owners", WithSettings(config_, Slowly(Plus(all, {"emulation.pause_seconds=0.4"})),
                                        {"--owners", "12"}));
  int killed = 0;
  for (uint32_t round = 1; killed < 3; round = std::max(round + 1, OpenRound(run))) {
    if (!run.WaitForEvent(Counted(run, round, has_phases() ? kSumsClients : 2))) break;
    const std::vector<pid_t> workers = run.Children("macaw-worker");
    if (workers.empty()) continue;
    if (::kill(workers[round % workers.size()], SIGKILL) == 0) ++killed;
  }
  ASSERT_EQ(run.Wait(), 0) << run.output();
  EXPECT_GE(killed, 2);
  EXPECT_EQ(Text(run), undisturbed);
}

// A phase closes without it, and so do those that follow.
TEST_P(SumsKilled, ARoundClosesWithoutAStoppedOwnerAndIsReplayed) {
  Simulation run("deadline", WithSettings(config_,
                                          Slowly({"cohort.size=11", "run.rounds=14",
                                                  "emulation.pause_seconds=0.4", "round.deadline=3",
                                                  "round.quorum=0.2", "round.present_within=60"}),
                                          {"--owners", "12"}));
  ASSERT_TRUE(run.WaitForEvent(RoundDone(1))) << run.output();
  const std::vector<pid_t> workers = run.Children("macaw-worker");
  ASSERT_GE(workers.size(), 12u);
  ::kill(workers[2], SIGSTOP);
  const bool closed =
      run.WaitForEvent([](const auto& event) { return event["event"] == "left_out"; });
  ::kill(workers[2], SIGCONT);
  ASSERT_TRUE(closed) << run.output();
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const auto replay = RunMacaw(absl::StrCat("replay ", run.folder(), " --out ", run.folder(),
                                            "-again --set emulation.pause_probability=0"));
  EXPECT_EQ(replay.exit, 0) << replay.text;
  EXPECT_THAT(replay.text, HasSubstr("same       14 rounds, and the same model: " + run.digest()));
}

// Devices that enrol and train over TLS; one is killed and enrols again.
TEST_P(SumsKilled, AFleetOfDevicesEndsWithTheModelOfTheSimulation) {
  std::string text =
      "run.name = \"fleet\"\nrun.seed = 3\ncohort.size = 3\ndata.source = \"csv\"\n"
      "data.path = \"rows.csv\"\npartition.scheme = \"iid\"\npartition.clients = 5\n";
  for (const std::string& setting : GetParam().settings) {
    const std::vector<std::string> parts = absl::StrSplit(setting, absl::MaxSplits('=', 1));
    if (parts[0] == "algorithm.name") continue;
    const bool list = absl::StartsWith(parts[1], "[");
    absl::StrAppend(&text, parts[0], " = ", list ? "" : "\"", parts[1], list ? "\n" : "\"\n");
  }
  const std::string config = folder_.Write("fleet.toml", text);
  const auto printed = RunProgram(
      MACAW_SOURCE_DIR "/deploy/fleet.sh",
      absl::StrCat("--bin ", MACAW_BIN_DIR, " --devices 5 --rounds 60 --algorithm ",
                   GetParam().name, " --config ", config, " --keep ", folder_ / "fleet"));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("\nsame\n"));
}

INSTANTIATE_TEST_SUITE_P(Of, SumsKilled, testing::ValuesIn(SumsRules()),
                         [](const auto& test) { return test.param.name; });

// Ridge's client remembers that its sums are there; without that memory it sends them once more.
TEST(Ridge, CountsTheRowsOfAnOwnerTwiceThatHasForgottenThatItCame) {
  const TemporaryFolder folder;
  const std::string config = SumsConfig(folder);
  Simulation run("memory",
                 WithSettings(config,
                              {"algorithm.name=ridge", R"(model.layers=["linear 3"])",
                               "cohort.size=11", "run.rounds=30", "state.store=memory",
                               "emulation.pause_probability=1", "emulation.pause_seconds=0.3"},
                              {"--owners", "12", "--processes", "1"}));
  ASSERT_TRUE(run.WaitForEvent(RoundDone(2))) << run.output();
  pid_t owner = -1;
  for (const pid_t worker : run.Children("macaw-worker")) {
    const auto line = ReadFile(absl::StrCat("/proc/", worker, "/cmdline"));
    if (line.ok() && absl::StrContains(*line, "/owner-3/")) owner = worker;
  }
  ASSERT_GT(owner, 0);
  ::kill(owner, SIGKILL);
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::vector<nlohmann::json> rows = RowsOf(run);
  EXPECT_GT(rows.back()["rule_rows"].get<double>(), rows.front()["rule_rows"].get<double>());
}

}  // namespace
}  // namespace macaw
