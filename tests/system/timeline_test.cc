// timeline.json of real runs, and what `macaw timeline` makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/files.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::RunMacaw;
using testing_support::Simulation;

nlohmann::json TimelineOf(const Simulation& run) {
  return nlohmann::json::parse(*ReadFile(run.folder() + "/timeline.json"));
}

TEST(Timeline, HasEveryTurnOnceWithinItsRound) {
  Simulation run("run", {testing_support::WriteConfig("run"), "--processes", "2", "--slots", "2"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::map<int, std::pair<double, double>> rounds;  // from and to, µs
  std::map<int, std::set<std::string>> clients;     // by round
  std::set<std::pair<int, int>> slots;              // (process, thread)
  uint64_t turns = 0;
  uint64_t cohort = 0;
  for (const nlohmann::json& event : TimelineOf(run)) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"], end = start + event["dur"].get<double>();
    const int round = event["args"]["round"];
    const std::string name = event["name"];
    if (event["pid"] == 0) {
      if (!name.starts_with("round ")) continue;
      rounds[round] = {start, end};
      cohort += event["args"]["clients"].get<uint64_t>();
      EXPECT_EQ(event["args"]["slots"], 4);
      continue;
    }
    EXPECT_TRUE(clients[round].insert(name).second) << name << " twice in round " << round;
    EXPECT_GE(start, rounds.at(round).first);
    EXPECT_LE(end, rounds.at(round).second);
    slots.emplace(event["pid"], event["tid"]);
    ++turns;
  }
  EXPECT_EQ(rounds.size(), run.summary()["rounds"].get<size_t>());
  EXPECT_EQ(turns, cohort);
  EXPECT_LE(slots.size(), 4u);

  const auto printed = RunMacaw("timeline " + run.folder() + " --svg " + run.folder() + "/t.svg");
  EXPECT_EQ(printed.exit, 0);
  EXPECT_THAT(printed.text, AllOf(HasSubstr("worker-0"), HasSubstr("worker-1"),
                                  HasSubstr("hand out"), HasSubstr("slots are busy")));
  EXPECT_THAT(*ReadFile(run.folder() + "/t.svg"), HasSubstr("worker-1, slot 1"));
}

TEST(Timeline, GoesOnInAResumedRun) {
  const std::string config = testing_support::WriteConfig("run");
  Simulation run("run", {config, "--set", "run.checkpoint_every=1", "--set",
                         "emulation.pause_probability=1", "--set", "emulation.pause_seconds=0.05"});
  ASSERT_TRUE(run.WaitForEvent([](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"] == 2;  // so the first one is kept
  }));
  run.Signal(SIGKILL);
  run.Wait();
  Simulation resumed("resumed", {"--resume", run.folder()});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  std::set<int> rounds;
  for (const nlohmann::json& event : TimelineOf(resumed)) {
    if (event["name"].get<std::string>().starts_with("round "))
      rounds.insert(event["args"]["round"].get<int>());
  }
  EXPECT_EQ(rounds.size(), resumed.summary()["rounds"].get<size_t>());
}

TEST(Timeline, OfNoRunOrOfARoundThatIsNotThereIsAClearError) {
  EXPECT_EQ(RunMacaw("timeline /nowhere").exit, 2);
  EXPECT_THAT(RunMacaw("timeline /nowhere").text, HasSubstr("/nowhere/timeline.json"));
  Simulation run("run", {testing_support::WriteConfig("run")});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  const std::string drawn =
      absl::StrCat("timeline ", run.folder(), " --svg ", run.folder(), "/never.svg --rounds ");
  EXPECT_THAT(RunMacaw(drawn + "77").text, HasSubstr("from 1 to 3"));
  EXPECT_THAT(RunMacaw(drawn + "b").text, HasSubstr("12:14"));
  const auto nowhere = RunMacaw("timeline " + run.folder() + " --rounds 1");
  EXPECT_EQ(nowhere.exit, 2);
  EXPECT_THAT(nowhere.text, HasSubstr("give --svg FILE or --virtual FILE"));
}

}  // namespace
}  // namespace macaw
