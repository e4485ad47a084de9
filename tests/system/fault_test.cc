// Processes are killed, stopped and interrupted at random moments; the result must be that of an
// undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "core/random.h"
#include "tests/system/simulation.h"
#include "tests/system/workers.h"

namespace macaw {
namespace {

using testing_support::AllGone;
using testing_support::Pauses;
using testing_support::ResumeWithoutPauses;
using testing_support::Simulation;
using testing_support::StopAWorkerUntilItIsLost;
using testing_support::WriteConfig;

class Fault : public testing::Test {
 protected:
  Fault() : config_(WriteConfig("fault", "[evaluation]\nevery = 2\n")) {
    arguments_ = {config_, "--rounds", "14", "--set", "cohort.size=40", "--set", "model.name=mlp"};
  }
  // With a pause after each client, so that on any machine a signal finds somebody at work: a round
  // of forty clients takes a second on two slots.
  std::vector<std::string> With(std::vector<std::string> more,
                                const std::string& pause = "0.05") const {
    std::vector<std::string> all = arguments_;
    for (const std::string& setting : Pauses(pause)) all.insert(all.end(), {"--set", setting});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  const Simulation& Undisturbed() {
    if (!undisturbed_) {
      undisturbed_ = std::make_unique<Simulation>("undisturbed", arguments_);
      EXPECT_EQ(undisturbed_->Wait(), 0) << undisturbed_->output();
    }
    return *undisturbed_;
  }
  void ExpectUndisturbed(const Simulation& simulation) {
    EXPECT_EQ(simulation.digest(), Undisturbed().digest());
    EXPECT_EQ(simulation.metrics(), Undisturbed().metrics());
  }
  // The start of a round, or a part in the middle of it: a moment at which somebody is training.
  static auto Round(uint32_t round) {
    return [round](const nlohmann::json& event) {
      return event["event"] == "round" && event["round"].get<uint32_t>() >= round;
    };
  }

  const std::string config_;
  std::vector<std::string> arguments_;
  std::unique_ptr<Simulation> undisturbed_;
};

TEST_F(Fault, AWorkerKilledAtARandomMomentOfEveryRoundChangesNothing) {
  arguments_[2] = "24";  // rounds
  Simulation simulation("killed", With({"--processes", "2", "--slots", "1"}, "0.02"));
  RandomStream random({.seed = 1});
  std::set<pid_t> killed;
  for (int round = 1; round <= 13; ++round) {
    if (!simulation.WaitForANewRound()) break;
    const std::vector<pid_t> workers = simulation.Children("macaw-worker");
    if (workers.empty()) continue;
    const pid_t victim = workers[random.Below(workers.size())];
    // The moment is what is random here; its pauses make a round last longer than this.
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(200'000)));
    if (::kill(victim, SIGKILL) == 0) killed.insert(victim);
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_GE(killed.size(), 10u);
  // The first to commit in a round gets the clients of the one that was killed, too.
  EXPECT_THAT(simulation.output(), testing::Not(testing::HasSubstr("has had no answer")));
  ExpectUndisturbed(simulation);
  int lost = 0, leased_again = 0;
  for (const auto& event : simulation.events()) {
    if (event["event"] == "worker_lost") ++lost;
    if (event["event"] == "requeued") leased_again += event["clients"].get<int>();
  }
  EXPECT_GE(lost, 5) << "the events should show workers lost";
  EXPECT_GE(leased_again, 5) << "the events should show clients leased again";
}

// Who is killed comes back as a new worker, in the middle of a round that was planned without it.
TEST_F(Fault, AWorkerThatIsKilledAndJoinsAgainChangesNothingUnderAnyPolicy) {
  arguments_[2] = "6";  // rounds
  for (const char* policy :
       {"planned_stealing", "longest_first", "random", "round_robin", "uniform"}) {
    SCOPED_TRACE(policy);
    Simulation simulation(policy, With({"--processes", "3", "--slots", "1", "--set",
                                        std::string("scheduler.policy=") + policy},
                                       "0.02"));
    for (const uint32_t round : {1u, 3u}) {
      if (!simulation.WaitForEvent(Round(round))) break;
      const std::vector<pid_t> workers = simulation.Children("macaw-worker");
      if (!workers.empty()) ::kill(workers[round % workers.size()], SIGKILL);
    }
    ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
    ExpectUndisturbed(simulation);
  }
}

TEST_F(Fault, TheOnlyWorkerKilledChangesNothing) {
  arguments_[2] = "6";  // rounds
  Simulation simulation("killed", With({"--processes", "1"}, "0.02"));
  for (uint32_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(simulation.WaitForEvent(Round(round)));
    for (const pid_t worker : simulation.Children("macaw-worker")) ::kill(worker, SIGKILL);
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  ExpectUndisturbed(simulation);
}

TEST_F(Fault, AStoppedWorkerPastItsLeaseAndWokenChangesNothing) {
  arguments_[2] = "20";  // rounds
  Simulation simulation(
      "stopped",
      With({"--processes", "2", "--slots", "1", "--set", "server.lease_timeout=1"}, "0.02"));
  ASSERT_TRUE(simulation.WaitForEvent(Round(1)));
  StopAWorkerUntilItIsLost(simulation);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  ExpectUndisturbed(simulation);
}

TEST_F(Fault, AStoppedServerIsNamedAndWokenChangesNothing) {
  arguments_[2] = "20";  // rounds
  Simulation simulation("stopped", With({"--processes", "2", "--slots", "1"}, "0.02"));
  ASSERT_TRUE(simulation.WaitForEvent(Round(1)));
  const std::vector<pid_t> servers = simulation.Children("macaw-server");
  ASSERT_EQ(servers.size(), 1u);
  ::kill(servers[0], SIGSTOP);
  EXPECT_TRUE(simulation.WaitForOutput("macaw-server is stopped")) << simulation.output();
  ::kill(servers[0], SIGCONT);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_NE(simulation.output().find("macaw-server goes on"), std::string::npos);
  ExpectUndisturbed(simulation);
}

TEST_F(Fault, EverythingKilledAndResumedChangesNothing) {
  for (const bool server_only : {true, false}) {
    SCOPED_TRACE(server_only ? "the server alone" : "everything");
    auto first = std::make_unique<Simulation>("first", With({"--processes", "2", "--slots", "1"}));
    ASSERT_TRUE(first->WaitForEvent(Round(2)));
    std::vector<pid_t> children = first->Children("macaw-worker");
    const std::vector<pid_t> servers = first->Children("macaw-server");
    children.insert(children.end(), servers.begin(), servers.end());
    if (server_only) {
      for (const pid_t server : servers) ::kill(server, SIGKILL);
    } else {
      first->Signal(SIGKILL);
    }
    EXPECT_NE(first->Wait(), 0);
    EXPECT_TRUE(AllGone(children)) << "children must not outlive the run";
    if (server_only) {
      EXPECT_NE(first->output().find("--resume"), std::string::npos) << first->output();
    }
    Simulation second("second", ResumeWithoutPauses(*first));
    ASSERT_EQ(second.Wait(), 0) << second.output();
    ExpectUndisturbed(second);
  }
}

TEST_F(Fault, CtrlCCheckpointsExits130AndResumes) {
  Simulation first("first", With({}));
  ASSERT_TRUE(first.WaitForEvent(Round(2)));
  first.Signal(SIGINT);
  EXPECT_EQ(first.Wait(), 130);
  EXPECT_NE(first.output().find("--resume"), std::string::npos) << first.output();
  std::vector<std::string> resume = ResumeWithoutPauses(first);
  resume.insert(resume.end(), {"--processes", "1", "--slots", "2"});
  Simulation second("second", resume);
  ASSERT_EQ(second.Wait(), 0) << second.output();
  ExpectUndisturbed(second);
}

TEST_F(Fault, ADamagedOrForeignCheckpointIsRefusedByName) {
  Simulation first("first", With({}));
  ASSERT_TRUE(first.WaitForEvent(Round(2)));
  first.Signal(SIGINT);
  ASSERT_EQ(first.Wait(), 130);
  Simulation foreign("foreign", {"--resume", first.folder(), "--set", "local.lr=0.5"});
  EXPECT_NE(foreign.Wait(), 0);
  EXPECT_NE(foreign.output().find("local.lr"), std::string::npos) << foreign.output();

  std::string newest;
  for (const auto& entry : std::filesystem::directory_iterator(first.folder() + "/checkpoints")) {
    newest = std::max(newest, entry.path().string());
  }
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-100, std::ios::end);
  file.put('\x5a').put('\x5a').put('\x5a');
  file.close();
  Simulation damaged("damaged", {"--resume", first.folder()});
  EXPECT_NE(damaged.Wait(), 0);
  EXPECT_NE(damaged.output().find("damaged"), std::string::npos) << damaged.output();
}

}  // namespace
}  // namespace macaw
