// server.durability = "commit": the server is killed at random moments inside rounds, while the
// workers train; the result must be that of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/random.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RoundDone;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::SlowerStateful;
using testing_support::StateBytes;
using testing_support::StateBytesOf;
using testing_support::WaitAMoment;

// Of the lines of `macaw log --json`: the clients of a round whose attempt a node had, or had had
// accepted, when a server died, and that were handed out once more afterwards. What was given back
// or taken away before that does not count.
int TrainedTwiceIn(const std::string& log) {
  using Turn = std::tuple<int, int, int>;  // round, phase, client
  std::map<Turn, std::string> held;        // and its fence
  std::set<std::pair<Turn, std::string>> when_it_died;
  int twice = 0;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    const std::string kind = record["record"];
    if (kind == "run_opened") {
      for (const auto& attempt : held) when_it_died.insert(attempt);
    } else if (kind == "leased") {
      for (const auto& attempt : record["attempts"]) {
        const Turn turn{record["round"], record["phase"], attempt["client"]};
        const auto [before, first] = held.try_emplace(turn, attempt["fence"]);
        if (first || before->second == attempt["fence"]) continue;
        twice += when_it_died.contains(*before) ? 1 : 0;
        before->second = attempt["fence"];
      }
    } else if (kind == "requeued") {
      // Its node has never heard of that lease, so nobody has trained.
      const bool unheard = absl::StartsWith(record.value("why", ""), "a lease never reached");
      for (const auto& attempt : record["attempts"]) {
        const auto found = held.find({record["round"], record["phase"], attempt["client"]});
        if (found != held.end() && (unheard || !when_it_died.contains(*found))) held.erase(found);
      }
    }
  }
  return twice;
}

// The clients that a run trained again because its server died.
int TrainedTwice(const std::string& run_dir) {
  const testing_support::Printed log = RunMacaw("log " + run_dir + " --json");
  EXPECT_EQ(log.exit, 0) << log.text;
  return TrainedTwiceIn(log.text);
}

TEST(TrainedTwice, CountsWhatADeadServerHadHandedOutAndTheNextOneHandsOutAgain) {
  const auto opened = [](int epoch) {
    return absl::StrCat(R"({"record":"run_opened","epoch":)", epoch, "}\n");
  };
  const auto attempts = [](const char* record, int client, const char* fence) {
    return absl::StrCat(R"({"record":")", record, R"(","round":1,"phase":0,"attempts":[{"client":)",
                        client, R"(,"fence":")", fence, "\"}]}\n");
  };
  const std::string leased = opened(1) + attempts("leased", 3, "1.1") +
                             attempts("leased", 4, "1.2") + attempts("requeued", 4, "1.2");
  EXPECT_EQ(TrainedTwiceIn(leased + attempts("leased", 4, "1.3")), 0) << "no server has died";
  EXPECT_EQ(TrainedTwiceIn(leased + opened(2) + attempts("leased", 4, "2.1")), 0);
  EXPECT_EQ(TrainedTwiceIn(leased + opened(2) + attempts("leased", 3, "2.1")), 1);
  EXPECT_EQ(TrainedTwiceIn(leased + opened(2) + attempts("requeued", 3, "1.1") +
                           attempts("leased", 3, "2.1")),
            1)
      << "it says so itself";
  EXPECT_EQ(TrainedTwiceIn(leased + opened(2) + attempts("leased", 5, "2.1")), 0);
}

// Rounds that were closed are done again without workers, so nobody could evaluate such a model.
TEST(Durability, ARunThatHasLostTheRowOfAClosedRoundGoesBackToItsCheckpoint) {
  const std::vector<std::string> job = SlowerStateful("fedavg", "24");
  Simulation undisturbed("undisturbed", Plus(job, {"--set", "emulation.pause_probability=0"}));
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();
  // The only checkpoint is that after the fourth round, which was the last one at first.
  Simulation begun("begun", Plus(SlowerStateful("fedavg", "4"),
                                 {"--set", "emulation.pause_probability=0", "--set",
                                  "server.durability=commit", "--set", "evaluation.every=1"}));
  ASSERT_EQ(begun.Wait(), 0) << begun.output();
  Simulation killed("killed", {"--resume", begun.folder(), "--rounds", "24", "--set",
                               "run.checkpoint_every=100", "--set", "emulation.pause_probability=1",
                               "--set", "emulation.pause_seconds=0.05"});
  ASSERT_TRUE(killed.WaitForEvent(RoundDone(7)));
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait(), 128 + SIGKILL) << killed.output();
  const std::string path = killed.folder() + "/metrics.jsonl";
  const std::string rows = *ReadFile(path);
  size_t end = 0;
  for (int row = 0; row < 4; ++row) end = rows.find('\n', end) + 1;
  ASSERT_GT(rows.size(), end) << "rounds after the checkpoint";
  std::filesystem::resize_file(path, end);
  Simulation resumed("resumed", ResumeWithoutPauses(killed));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_NE(ReadFile(killed.folder() + "/logs/server.log")->find("goes_back_to_round 4"),
            std::string::npos);
  EXPECT_EQ(resumed.digest(), undisturbed.digest());
}

// Rounds after the checkpoint are done again from their parts: their states are current.
TEST(Durability, SweepingStatesUpBeforeAResumeChangesNothing) {
  const std::vector<std::string> job = SlowerStateful("scaffold", "24");
  Simulation undisturbed("undisturbed", Plus(job, {"--set", "emulation.pause_probability=0"}));
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();
  // The only checkpoint is that after the fourth round, which was the last one at first.
  Simulation begun("begun",
                   Plus(SlowerStateful("scaffold", "4"), {"--set", "emulation.pause_probability=0",
                                                          "--set", "server.durability=commit"}));
  ASSERT_EQ(begun.Wait(), 0) << begun.output();
  Simulation killed(
      "killed", {"--resume", begun.folder(), "--rounds", "24", "--set", "run.checkpoint_every=100",
                 "--set", "emulation.pause_probability=1", "--set", "emulation.pause_seconds=0.1"});
  ASSERT_TRUE(killed.WaitForEvent(RoundDone(6)));
  killed.Signal(SIGKILL);
  EXPECT_EQ(killed.Wait(), 128 + SIGKILL) << killed.output();
  const testing_support::Printed listed = RunMacaw("state ls " + killed.folder());
  EXPECT_NE(listed.text.find("versions of later rounds"), std::string::npos) << listed.text;
  const testing_support::Printed swept = RunMacaw("state gc " + killed.folder());
  EXPECT_EQ(swept.exit, 0) << swept.text;
  Simulation resumed("resumed", ResumeWithoutPauses(killed));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(StateBytesOf(resumed), StateBytesOf(undisturbed));
}

// A run whose server dies twice in each of so many rounds. It has more for those that a test that
// was woken late does not see.
void KillTheServerInEveryRound(const std::string& algorithm, int rounds,
                               const std::vector<std::string>& more = {}) {
  const std::vector<std::string> job =
      Plus(SlowerStateful(algorithm, std::to_string(2 * rounds + 12), "0.02"), more);
  Simulation undisturbed("undisturbed", Plus(job, {"--set", "emulation.pause_probability=0"}));
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();

  Simulation simulation("killed", Plus(job, {"--processes", "2", "--slots", "1", "--set",
                                             "server.durability=commit"}));
  RandomStream random({.seed = 14});
  int killed = 0;
  const auto kill_at_a_random_moment = [&] {
    WaitAMoment(random);
    for (const pid_t server : simulation.Children("macaw-server"))
      killed += ::kill(server, SIGKILL) == 0 ? 1 : 0;
  };
  const std::vector<pid_t> workers = [&] {
    EXPECT_TRUE(simulation.WaitForEvent(RoundDone(1)));
    return simulation.Children("macaw-worker");
  }();
  for (int round = 0; round < rounds; ++round) {
    if (!simulation.WaitForANewRound()) break;
    kill_at_a_random_moment();
    if (!simulation.WaitForOutput("starting it again", killed)) break;
    kill_at_a_random_moment();
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_GE(killed, 3 * rounds / 2) << simulation.output();
  EXPECT_EQ(StateBytesOf(simulation), StateBytesOf(undisturbed));
  EXPECT_EQ(workers.size(), 2u);
  EXPECT_EQ(simulation.output().find("worker-0 died"), std::string::npos) << simulation.output();
  EXPECT_EQ(TrainedTwice(simulation.folder()), 0);
}

TEST(Durability, AServerKilledAtRandomMomentsOfEveryRoundChangesNothing) {
  KillTheServerInEveryRound("fedavg", 5);
}

TEST(Durability, AServerKilledAtRandomMomentsLosesNoClientState) {
  KillTheServerInEveryRound("scaffold", 10);
}

TEST(Durability, AServerKilledAtRandomMomentsLosesNoRestOfACodec) {
  KillTheServerInEveryRound("fedavg", 5, {"--set", R"(update.codec=["topk 0.1"])"});
}

TEST(Durability, AServerKilledAtRandomMomentsKeepsWhatIsFrozen) {
  KillTheServerInEveryRound("fedavg", 5, {"--set", R"(model.frozen=["1.*"])"});
}

// Of the records of `macaw log --json`: how many servers or workers were lost between the start and
// the end of a second phase.
int LostInASecondPhase(const std::string& log) {
  int lost = 0;
  bool second = false;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    const std::string kind = record["record"];
    if (kind == "round_opened") second = record["phase"] == 1;
    if (kind == "closed") second = false;
    if (second && (kind == "run_opened" || kind == "node_lost")) ++lost;
  }
  return lost;
}

// Its server holds the first phase's sums, and its clients keep their matrices.
TEST(Durability, AServerOrWorkerKilledInPowerSgdsSecondPhaseChangesNothing) {
  const std::vector<std::string> job =
      Plus(SlowerStateful("fedavg", "5", "0.03"),
           {"--set", R"(update.codec=["powersgd 2"])", "--set", "update.feedback=residual"});
  Simulation undisturbed("undisturbed", Plus(job, {"--set", "emulation.pause_probability=0"}));
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();
  for (const char* program : {"macaw-server", "macaw-worker"}) {
    SCOPED_TRACE(program);
    Simulation run(program, Plus(job, {"--processes", "2", "--slots", "1", "--set",
                                       "server.durability=commit"}));
    for (int round = 2; round <= 4; ++round) {
      // All parts of the first phase have come.
      const auto in_second_phase = [&](const nlohmann::json&) {
        int clients = 0;
        for (const nlohmann::json& event : run.events()) {
          if (event["event"] == "part" && event["round"] == round)
            clients += event["clients"].get<int>();
        }
        return clients >= 20;
      };
      if (!run.WaitForEvent(in_second_phase)) break;
      const std::vector<pid_t> found = run.Children(program);
      if (!found.empty()) ::kill(found[0], SIGKILL);
    }
    ASSERT_EQ(run.Wait(), 0) << run.output();
    EXPECT_GE(LostInASecondPhase(RunMacaw("log " + run.folder() + " --json").text), 1);
    EXPECT_EQ(StateBytesOf(run), StateBytesOf(undisturbed));
  }
}

}  // namespace
}  // namespace macaw
