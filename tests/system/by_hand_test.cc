// A server and its workers started by hand, and what the folder is good for afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/listen_tcp.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Plus;
using testing_support::Program;
using testing_support::RunMacaw;
using testing_support::Simulation;
using testing_support::SmallStateful;
using testing_support::StateBytes;
using testing_support::StateBytesAfter;
using testing_support::StateBytesOf;

class ByHand : public testing::Test {
 protected:
  // The job as a file, so that a server can read it. `macaw simulate` is what writes one.
  ByHand() {
    Simulation simulation("job", job_);
    EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
    simulated_ = StateBytesOf(simulation);
    std::filesystem::copy_file(simulation.folder() + "/config.toml", config_);
  }
  std::unique_ptr<Program> Server(std::vector<std::string> more) const {
    auto server = std::make_unique<Program>(
        "macaw-server", Plus({"--run-dir", run_, "--listen", "127.0.0.1:0"}, more));
    EXPECT_TRUE(server->WaitFor("listening on")) << server->text();
    return server;
  }

  const testing_support::TemporaryFolder folder_;
  const std::string run_ = folder_ / "run", config_ = folder_ / "job.toml";
  const std::vector<std::string> job_ = SmallStateful("scaffold", "3");
  StateBytes simulated_;
};

TEST_F(ByHand, TheFolderIsThatOfASimulationAndCanBeLookedAtAndCarriedOn) {
  {
    const auto server = Server({"--config", config_});
    EXPECT_THAT(server->text(), AllOf(HasSubstr("scaffold keep a state"), HasSubstr("--run-dir")));
    Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
    EXPECT_EQ(worker.Wait(), 0) << worker.text();
    EXPECT_EQ(server->Wait(), 0) << server->text();
  }
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
  for (const std::string command : {"state verify ", "timeline "}) {
    const auto printed = RunMacaw(command + run_);
    EXPECT_EQ(printed.exit, 0) << command << printed.text;
  }
  Simulation resumed("resumed", {"--resume", run_, "--rounds", "5"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  const StateBytes five = StateBytesAfter("five", SmallStateful("scaffold", "5"));
  EXPECT_EQ(StateBytesOf(resumed).model, five.model);
  EXPECT_EQ(StateBytesOf(resumed).states, five.states);
}

TEST_F(ByHand, AnInterruptedRunGoesOnWithItsFolderAlone) {
  {
    const auto server = Server({"--config", config_});
    ::kill(server->pid(), SIGINT);  // before anybody has joined: there is no checkpoint either
    EXPECT_EQ(server->Wait(), 130) << server->text();
  }
  const auto server = Server({"--resume"});
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
}

// The options of the first start are not given again.
TEST_F(ByHand, AResumedServerHasTheAddressAndTheAuthorityThatItHad) {
  const std::string authority = folder_ / "authority";
  ASSERT_EQ(RunMacaw("pki init --dir " + authority).exit, 0);
  {
    const auto server = Server({"--config", config_, "--authority", authority});
    ::kill(server->pid(), SIGKILL);
    server->Wait();
  }
  const std::string address = testing_support::Slurp(run_ + "/address");
  const auto stopped = [&](std::vector<std::string> more) {
    Program server("macaw-server", Plus({"--run-dir", run_, "--resume"}, more));
    EXPECT_TRUE(server.WaitFor("listening on")) << server.text();
    ::kill(server.pid(), SIGINT);
    EXPECT_EQ(server.Wait(), 130) << server.text();
    return server.text();
  };
  EXPECT_THAT(stopped({}), Not(HasSubstr("not encrypted")));
  EXPECT_EQ(testing_support::Slurp(run_ + "/address"), address);
  std::filesystem::rename(authority, folder_ / "moved");
  Program gone("macaw-server", {"--run-dir", run_, "--resume"});
  EXPECT_EQ(gone.Wait(), 1) << gone.text();
  EXPECT_THAT(gone.text(), AllOf(HasSubstr("holds no authority"), HasSubstr("--authority off")));
  EXPECT_THAT(stopped({"--authority", folder_ / "moved"}), Not(HasSubstr("not encrypted")));
  EXPECT_THAT(stopped({}), Not(HasSubstr("not encrypted")));
  EXPECT_THAT(stopped({"--authority", "off"}), HasSubstr("not encrypted"));
  EXPECT_EQ(testing_support::Slurp(run_ + "/address"), address);
}

// As a service manager does it: the same command each time.
TEST_F(ByHand, ResumeIfBegunBeginsOnceAndGoesOnAfterwards) {
  {
    const auto server = Server({"--resume-if-begun", "--config", config_});
    ::kill(server->pid(), SIGTERM);
    EXPECT_EQ(server->Wait(), 130) << server->text();
  }
  const std::string epoch = testing_support::Slurp(run_ + "/run-id");
  const auto server = Server({"--resume-if-begun", "--config", config_});
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(testing_support::Slurp(run_ + "/run-id"), epoch);
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
  Program again("macaw-server", {"--resume-if-begun", "--run-dir", run_, "--config", config_});
  EXPECT_EQ(again.Wait(), 0) << again.text();
  EXPECT_THAT(again.text(), HasSubstr("nothing_to_do"));
}

// A run with durable commits, whose clients take a while, so that a signal finds one at work.
class DurableByHand : public ByHand, public testing::WithParamInterface<int> {
 protected:
  std::string Durable(const std::string& pause = "0.25") const {
    std::string text = testing_support::Slurp(config_);
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"durability = \"checkpoint\"", "durability = \"commit\""},
             {"[emulation]\n",
              absl::StrCat("[emulation]\npause_probability = 1.0\npause_seconds = ", pause,
                           "\n")}}) {
      const size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << text;
      text.replace(at, from.size(), to);
    }
    return folder_.Write("durable.toml", text);
  }
  std::string Events() const { return testing_support::Slurp(run_ + "/events.jsonl"); }
  static size_t Count(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++count;
    return count;
  }
};

INSTANTIATE_TEST_SUITE_P(By, DurableByHand, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& tested) {
                           return tested.param == SIGKILL ? "Kill" : "ServiceManager";
                         });

TEST_P(DurableByHand, AServerThatStoppedGoesOnUnderItsWorkersWhereTheyLookForIt) {
  auto server = Server({"--config", Durable()});
  const std::string address = testing_support::Slurp(run_ + "/address");
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  ASSERT_TRUE(server->WaitFor("worker_joined")) << server->text();
  ::kill(server->pid(), GetParam());
  EXPECT_EQ(server->Wait(), GetParam() == SIGKILL ? 128 + SIGKILL : 130) << server->text();

  Program again("macaw-server", {"--run-dir", run_, "--resume"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(again.Wait(), 0) << again.text();
  EXPECT_THAT(again.text(), HasSubstr("goes_on_after_round"));
  EXPECT_EQ(Count(Events(), "worker_joined"), 1u) << "its session lives on: " << Events();
  EXPECT_EQ(testing_support::Slurp(run_ + "/address"), address);
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
}

// Another program has the port of the fleet, or that of the status page.
TEST_P(DurableByHand, APortThatIsTakenDoesNotCostTheOpenRound) {
  auto server = Server({"--config", Durable()});
  const std::string address = testing_support::Slurp(run_ + "/address");
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  ASSERT_TRUE(server->WaitFor("worker_joined")) << server->text();
  ::kill(server->pid(), GetParam());
  server->Wait();
  {
    int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
    const auto other = ListenTcp("127.0.0.1", port);
    ASSERT_TRUE(other.ok()) << other.status();
    const std::string log = testing_support::Slurp(run_ + "/rounds.log");
    Program refused("macaw-server", {"--run-dir", run_, "--resume"});
    EXPECT_EQ(refused.Wait(), 1) << refused.text();
    EXPECT_EQ(testing_support::Slurp(run_ + "/rounds.log"), log) << "the run was not opened";
  }
  {
    int port = 0;
    const auto other = ListenTcp("127.0.0.1", port);
    ASSERT_TRUE(other.ok()) << other.status();
    Program refused("macaw-server",
                    {"--run-dir", run_, "--resume", "--http", absl::StrCat("127.0.0.1:", port)});
    EXPECT_EQ(refused.Wait(), 1) << refused.text();
  }
  Program again("macaw-server", {"--run-dir", run_, "--resume"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(again.Wait(), 0) << again.text();
  EXPECT_EQ(Count(Events(), "worker_joined"), 1u) << "its session lives on: " << Events();
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
}

TEST_P(DurableByHand, APauseAndAQuarantineHoldInTheNextServer) {
  const auto admin = [this](const std::string& command) {
    return RunMacaw(absl::StrCat("admin ", command, " --run-dir ", run_));
  };
  {
    const auto server = Server({"--config", Durable("0.02")});
    ASSERT_EQ(admin("quarantine poisoner --reason 'lies'").exit, 0);
    ASSERT_EQ(admin("quarantine other").exit, 0);
    ASSERT_EQ(admin("admit other").exit, 0);
    ASSERT_EQ(admin("pause").exit, 0);
    ::kill(server->pid(), GetParam());
    server->Wait();
  }
  const auto server = Server({"--resume"});
  EXPECT_THAT(server->text(), HasSubstr("orders_hold paused=yes quarantined=1"));
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  ASSERT_TRUE(server->WaitFor("worker_joined")) << server->text();
  const std::string status = admin("status").text;
  EXPECT_THAT(status, AllOf(HasSubstr("paused"), HasSubstr("poisoner"), HasSubstr("lies"),
                            Not(HasSubstr("other"))));
  EXPECT_EQ(admin("resume").exit, 0);
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(testing_support::Slurp(run_ + "/metrics.jsonl"), simulated_.metrics);
}

TEST_F(ByHand, APauseEndsWithTheRunThatAnOperatorEnds) {
  {
    const auto server = Server({"--config", config_});
    ASSERT_EQ(RunMacaw("admin pause --run-dir " + run_).exit, 0);
    ASSERT_EQ(RunMacaw("admin quarantine poisoner --run-dir " + run_).exit, 0);
    ASSERT_EQ(RunMacaw("admin drain --run-dir " + run_).exit, 0);
    EXPECT_EQ(server->Wait(), 130) << server->text();
  }
  const auto server = Server({"--resume"});
  EXPECT_THAT(server->text(), HasSubstr("orders_hold paused=no quarantined=1"));
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
}

TEST_F(ByHand, NobodyElseRunsInALiveFolder) {
  const auto server = Server({"--config", config_});
  Program second("macaw-server", {"--config", config_, "--run-dir", run_, "--resume"});
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(second.text(), AllOf(HasSubstr(absl::StrCat("(pid ", server->pid(), ")")),
                                   HasSubstr("is running in " + run_)));
  for (const std::string& how : {std::string(" --resume "), " " + config_ + " --force --out "}) {
    const auto refused = RunMacaw("simulate" + how + run_);
    EXPECT_EQ(refused.exit, 1) << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("is running in " + run_));
  }
}

TEST_F(ByHand, AWorkerWithoutAPlaceForStatesIsToldWhatToSet) {
  const auto server = Server({"--config", config_});
  const std::string text = server->text();
  const std::string address = testing_support::Slurp(run_ + "/address");
  Program worker("macaw-worker", {"--config", config_, "--server",
                                  address.substr(0, address.find('\n')), "--name", "a"});
  EXPECT_EQ(worker.Wait(), 2);
  EXPECT_THAT(worker.text(), AllOf(HasSubstr("state.path"), HasSubstr("--run-dir")));
}

TEST_F(ByHand, ARedisThatOnlyASimulationStartsIsRefusedBeforeAnybodyWaits) {
  std::string text = testing_support::Slurp(config_);
  const size_t store = text.find("store = \"disk\"");
  ASSERT_NE(store, std::string::npos) << text;
  text.replace(store, 14, "store = \"redis\"\nurl = \"spawn\"");
  const std::string config = folder_.Write("redis.toml", text);
  Program server("macaw-server", {"--config", config, "--run-dir", run_});
  EXPECT_EQ(server.Wait(), 2);
  EXPECT_THAT(server.text(), AllOf(HasSubstr("state.url"), HasSubstr("redis-server"),
                                   Not(HasSubstr("listening"))));
}

}  // namespace
}  // namespace macaw
