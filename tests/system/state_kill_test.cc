// Workers and server killed at random moments, with two stateful algorithms on two stores: the
// model and the states of all clients are those of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing_support::AllGone;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RoundDone;
using testing_support::Simulation;
using testing_support::SlowerStateful;
using testing_support::SmallStateful;
using testing_support::StateBytes;
using testing_support::StateBytesAfter;
using testing_support::StateBytesOf;
using testing_support::StateBytesWithoutPauses;
using testing_support::WaitAMoment;

bool HasRedis() { return ::access("/usr/bin/redis-server", X_OK) == 0; }

std::vector<std::string> OnStore(const std::string& store) {
  if (store == "redis") return {"--set", "state.store=redis", "--set", "state.url=spawn"};
  return {"--set", "state.store=" + store};
}

class StateKill : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  // Kills one worker at a moment of each of so many rounds, then what `last` kills.
  template <typename Last>
  void Disturb(Simulation& simulation, int rounds, const Last& last) {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(simulation.WaitForANewRound()) << simulation.output();
      WaitAMoment(random_);
      const std::vector<pid_t> workers = simulation.Children("macaw-worker");
      if (!workers.empty() && ::kill(workers[random_.Below(workers.size())], SIGKILL) == 0)
        ++killed_;
    }
    ASSERT_TRUE(simulation.WaitForANewRound()) << simulation.output();
    WaitAMoment(random_);
    std::vector<pid_t> children;
    for (const char* name : {"macaw-worker", "macaw-server", "redis-server"}) {
      for (const pid_t child : simulation.Children(name)) children.push_back(child);
    }
    last(simulation);
    EXPECT_NE(simulation.Wait(), 0);
    EXPECT_TRUE(AllGone(children));
  }

  RandomStream random_{{.seed = 11}};
  int killed_ = 0;
};

TEST_P(StateKill, WorkersAndServerKilledAtRandomMomentsChangeNothing) {
  const auto& [algorithm, store] = GetParam();
  if (std::string(store) == "redis" && !HasRedis())
    GTEST_SKIP() << "/usr/bin/redis-server is not installed";
  const std::vector<std::string> job = SlowerStateful(algorithm, "28");
  Simulation first("first", Plus(Plus(job, OnStore(store)), {"--processes", "2", "--slots", "1",
                                                             "--set", "run.checkpoint_every=2"}));
  ASSERT_NO_FATAL_FAILURE(Disturb(first, 3, [](const Simulation& simulation) {
    for (const pid_t server : simulation.Children("macaw-server")) ::kill(server, SIGKILL);
  }));
  Simulation second("second", {"--resume", first.folder()});
  ASSERT_NO_FATAL_FAILURE(
      Disturb(second, 2, [](const Simulation& simulation) { simulation.Signal(SIGKILL); }));
  Simulation third("third", Plus(ResumeWithoutPauses(first), {"--processes", "1", "--slots", "2"}));
  ASSERT_EQ(third.Wait(), 0) << third.output();
  EXPECT_GE(killed_, 3);
  EXPECT_EQ(StateBytesOf(third), StateBytesWithoutPauses(job));
}

INSTANTIATE_TEST_SUITE_P(Of, StateKill,
                         testing::Combine(testing::Values("scaffold", "feddyn"),
                                          testing::Values("disk", "redis")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "On" +
                                  std::get<1>(info.param);
                         });

TEST(StateBeforeTheFirstCheckpoint, IsTheRunsOwnWhenItIsKilledAndBeginsAgain) {
  const std::vector<std::string> job = SlowerStateful("scaffold", "20");
  Simulation first("first", Plus(job, {"--set", "run.checkpoint_every=100"}));
  ASSERT_TRUE(first.WaitForEvent(RoundDone(2)));
  std::vector<pid_t> children = first.Children("macaw-worker");
  for (const pid_t server : first.Children("macaw-server")) children.push_back(server);
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), 128 + SIGKILL);
  ASSERT_TRUE(AllGone(children));
  Simulation second("second", ResumeWithoutPauses(first));
  ASSERT_EQ(second.Wait(), 0) << second.output();
  EXPECT_NE(second.output().find("begins again"), std::string::npos) << second.output();
  EXPECT_EQ(StateBytesOf(second), StateBytesWithoutPauses(job));
}

TEST(StateStores, TwoProcessesOnDiskAndOnRedisGiveTheBytesOfOneInMemory) {
  const std::vector<std::string> job = SmallStateful("scaffold", "5");
  const StateBytes memory = StateBytesAfter(
      "memory", Plus(Plus(job, OnStore("memory")), {"--processes", "1", "--slots", "1"}));
  EXPECT_EQ(StateBytesAfter("disk",
                            Plus(Plus(job, OnStore("disk")), {"--processes", "2", "--slots", "1"})),
            memory);
  if (!HasRedis()) GTEST_SKIP() << "/usr/bin/redis-server is not installed";
  EXPECT_EQ(StateBytesAfter(
                "redis", Plus(Plus(job, OnStore("redis")), {"--processes", "2", "--slots", "1"})),
            memory);
}

}  // namespace
}  // namespace macaw
