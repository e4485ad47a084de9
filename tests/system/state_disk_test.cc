// Client states on a disk that is full, torn or late, with the commands that look after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "testing/small_disk.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Plus;
using testing_support::Printed;
using testing_support::RoundDone;
using testing_support::Simulation;
using testing_support::SlowerStateful;
using testing_support::Slurp;
using testing_support::SmallDisk;
using testing_support::SmallStateful;
using testing_support::StateBytes;
using testing_support::StateBytesAfter;
using testing_support::StateBytesOf;
using testing_support::StateBytesWithoutPauses;
using testing_support::WaitAMoment;

Printed State(const std::string& arguments) {
  return testing_support::RunMacaw("state " + arguments);
}

TEST(StateOnAFullDisk, StopsTheRunWhichGoesOnOnceThereIsRoom) {
  const SmallDisk disk(1 << 20);  // 33 states of 31 kB: enough for the first round of 20
  if (!disk.mounted()) GTEST_SKIP() << disk.why();
  const std::vector<std::string> job = SmallStateful("scaffold");
  const std::string path = disk.path() + "/states";
  Simulation full("full", Plus(job, {"--set", "state.path=" + path}));
  EXPECT_EQ(full.Wait(), 1);
  EXPECT_THAT(full.output(), AllOf(HasSubstr("No space left on device"), HasSubstr("/states/1-"),
                                   HasSubstr("client "), HasSubstr("--resume")));
  ASSERT_TRUE(disk.Grow(64 << 20));
  Simulation resumed("resumed", {"--resume", full.folder()});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(StateBytesOf(resumed), StateBytesAfter("undisturbed", job));
}

TEST(StateOnATornDisk, StopsTheRunWithTheClientsName) {
  const std::vector<std::string> job =
      Plus(SlowerStateful("scaffold", "14"), {"--set", "cohort.size=40"});
  Simulation first("first", job);
  ASSERT_TRUE(first.WaitForEvent(RoundDone(2)));
  first.Signal(SIGINT);
  ASSERT_EQ(first.Wait(), 130) << first.output();
  // What a machine that lost its power can leave: files that end early, in the middle of a record.
  // Half of a file has states that count, whatever the open round had written behind them.
  int torn = 0;
  for (const auto& entry : std::filesystem::directory_iterator(first.folder() + "/state")) {
    if (entry.path().extension() != ".states") continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() / 2 - 10'000);
    ++torn;
  }
  ASSERT_GE(torn, 1);
  const Printed verified = State("verify " + first.folder());
  EXPECT_EQ(verified.exit, 1);
  EXPECT_THAT(verified.text, AllOf(HasSubstr("client "), HasSubstr("missing or damaged")));
  Simulation second("second", {"--resume", first.folder()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.output(), AllOf(HasSubstr("the state of client "),
                                     AnyOf(HasSubstr("checksum"), HasSubstr("not in the store")),
                                     HasSubstr("--state-reset")));
}

// Stopped while it trains, until its clients are given to others; then it goes on where it was.
TEST(StateOfALateWorker, IsAnOrphanAndItsCommitIsRefused) {
  const std::vector<std::string> job = SlowerStateful("scaffold", "24", "0.03");
  Simulation simulation(
      "late", Plus(job, {"--processes", "2", "--slots", "1", "--set", "server.lease_timeout=1"}));
  RandomStream random({.seed = 5});
  const auto count = [&](const std::string& name) {
    int64_t count = 0;
    for (const auto& event : simulation.events()) count += event["event"] == name ? 1 : 0;
    return count;
  };
  const auto requeued = [&] { return count("requeued"); };
  int64_t lost = 0;
  for (int round = 1; round <= 5 && requeued() == 0; ++round) {
    ASSERT_TRUE(simulation.WaitForANewRound());
    WaitAMoment(random);
    const std::vector<pid_t> workers = simulation.Children("macaw-worker");
    ASSERT_FALSE(workers.empty());
    ::kill(workers[0], SIGSTOP);
    ++lost;
    EXPECT_TRUE(simulation.WaitForEvent([&](const auto&) { return count("worker_lost") >= lost; }));
    ::kill(workers[0], SIGCONT);
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_GT(requeued(), 0) << "it was never stopped with clients on its hands";
  const std::string logs = Slurp(simulation.folder() + "/logs/worker-0.log") +
                           Slurp(simulation.folder() + "/logs/worker-1.log");
  EXPECT_THAT(logs, AnyOf(HasSubstr("session_lost"), HasSubstr("commit_turned_down")));
  EXPECT_EQ(StateBytesOf(simulation), StateBytesWithoutPauses(job));
  // What it wrote too late is nobody's state, and goes when it is swept up.
  const std::string digest = StateBytesOf(simulation).states;
  EXPECT_THAT(State("verify " + simulation.folder()).text, HasSubstr(digest));
  EXPECT_EQ(State("gc " + simulation.folder()).exit, 0);
  const Printed swept = State("ls " + simulation.folder());
  EXPECT_THAT(swept.text, HasSubstr("orphans        0 versions"));
  EXPECT_THAT(State("verify " + simulation.folder()).text, HasSubstr(digest));
}

TEST(StateShow, TellsHeaderAndNormsOfOneClient) {
  const std::vector<std::string> job = Plus(SmallStateful("scaffold"), {"--set", "cohort.size=40"});
  Simulation run("run", job);
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const Printed shown = State("show " + run.folder() + " 7");
  EXPECT_EQ(shown.exit, 0) << shown.text;
  EXPECT_THAT(shown.text, AllOf(HasSubstr("client         7, after round 4"), HasSubstr("checksum"),
                                HasSubstr("7850 float32: norm "), Not(HasSubstr("not finite"))));
  const Printed unknown = State("show " + run.folder() + " 1000");
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.text, HasSubstr("client 1000 has no state"));
}

}  // namespace
}  // namespace macaw
