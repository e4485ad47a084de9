// A standing server with real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/fd.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/installed.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Printed;
using testing_support::Program;
using testing_support::RunMacaw;
using Json = nlohmann::json;

class Standing : public testing::Test {
 protected:
  // A worker ends with each run, so there is one for each.
  std::unique_ptr<Program> Server() const {
    auto server = std::make_unique<Program>(
        "macaw-server",
        std::vector<std::string>{"--standing", folder_.path(), "--listen", listen_});
    EXPECT_TRUE(server->WaitFor("waits_for_runs")) << server->text();
    return server;
  }
  std::unique_ptr<Program> Worker() const {
    return std::make_unique<Program>(
        "macaw-worker", std::vector<std::string>{"--config", config_, "--server", listen_, "--name",
                                                 "a", "--scratch", folder_ / "scratch"});
  }
  Printed Admin(const std::string& command) const {
    return RunMacaw(absl::StrCat("admin ", command, " --standing ", folder_.path()));
  }
  Json Runs() const { return Json::parse(Admin("runs --json").text); }
  bool WaitForState(const std::string& name, const std::string& state) const {
    for (int i = 0; i < 600; ++i) {
      for (const Json& run : Runs()) {
        if (run["name"] == name && run["state"] == state) return true;
      }
      absl::SleepFor(absl::Milliseconds(50));
    }
    ADD_FAILURE() << Admin("runs").text;
    return false;
  }
  std::string Plan(const std::string& name, const std::string& more = "") const {
    const std::string file = folder_ / (name + ".toml");
    const Printed plan = RunMacaw(absl::StrCat("plan ", config_, " --out ", file, more));
    EXPECT_EQ(plan.exit, 0) << plan.text;
    return file;
  }
  void Enrol(const std::string& name, const std::string& how, const std::string& fleet,
             const std::string& authority) const {
    const Printed invite =
        RunMacaw(absl::StrCat("pki invite ", name, " ", how, " --dir ", authority));
    const size_t code = invite.text.find("MACAW-");
    const std::string file = folder_.Write(
        "code", invite.text.substr(code, invite.text.find_first_of(" \n", code) - code) + "\n");
    const Printed enrolled = testing_support::RunProgram(
        MACAW_BIN_DIR "/macaw-worker",
        absl::StrCat("enrol --server ", fleet, " --identity ", folder_ / name, " - < ", file));
    EXPECT_EQ(enrolled.exit, 0) << enrolled.text;
  }
  std::string DigestOf(const std::string& name) const {
    return Json::parse(*ReadFile(folder_ / "runs/" + name + "/summary.json"))["model_digest"];
  }

  const testing_support::TemporaryFolder folder_;
  const std::string listen_ = "unix:" + folder_ / "workers.sock";
  const std::string config_ = testing_support::WriteConfig("standing", "workers = 1\n");
};

TEST_F(Standing, DoesRunsOneAfterTheOtherWithTheModelsOfSimulations) {
  testing_support::Simulation plain("plain", {config_});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const auto server = Server();
  EXPECT_THAT(Admin("runs").text, HasSubstr("no run was submitted"));
  EXPECT_THAT(Admin("submit " + Plan("one")).text, HasSubstr("begins"));
  EXPECT_THAT(Admin("submit " + Plan("two", " --set run.seed=7")).text,
              HasSubstr("waits for 1 other"));
  EXPECT_EQ(Admin("submit " + Plan("three") + " --name one").exit, 2) << "the name is taken";
  EXPECT_EQ(Admin("withdraw two --reason 'a slip'").exit, 0);
  EXPECT_EQ(Admin("submit " + folder_ / "three.toml").exit, 0);
  EXPECT_EQ(Worker()->Wait(), 0);
  EXPECT_EQ(Worker()->Wait(), 0);
  ASSERT_TRUE(WaitForState("three", "finished"));
  EXPECT_EQ(DigestOf("one"), plain.digest());
  EXPECT_EQ(DigestOf("three"), plain.digest());
  EXPECT_THAT(Admin("runs").text, HasSubstr("a slip"));

  // As rules with several models leave them.
  folder_.Write("runs/three/models/1.safetensors", "one");
  const std::string to = folder_ / "fetched";
  const Printed fetched = Admin("results three --to " + to);
  EXPECT_EQ(fetched.exit, 0) << fetched.text;
  EXPECT_THAT(fetched.text, HasSubstr("model.safetensors"));
  for (const std::string file :
       {"summary.json", "metrics.jsonl", "model.safetensors", "models/1.safetensors"})
    EXPECT_EQ(*ReadFile(to + "/" + file), *ReadFile(folder_ / "runs/three/" + file)) << file;
  EXPECT_FALSE(FileExists(to + "/checkpoints")) << "is no result";
  EXPECT_EQ(RunMacaw("log " + to).exit, 0);
  EXPECT_THAT(Admin("results three --to " + to).text, HasSubstr("is not empty"));
  EXPECT_THAT(Admin("results nobody --to " + folder_ / "x").text,
              HasSubstr("there is no run \"nobody\""));
  EXPECT_FALSE(FileExists(folder_ / "x"));
  EXPECT_THAT(Admin("submit " + config_).text, HasSubstr("macaw plan CONFIG"));
  EXPECT_THAT(Admin("pause").text, HasSubstr("macaw admin runs"));
}

std::string After(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == text.npos ? "" : text.substr(at + words.size());
}

std::string Page(const std::string& log, const std::string& path) {
  const std::string port = After(log, "status_page http://127.0.0.1:");
  httplib::Client client("127.0.0.1", std::atoi(port.c_str()));
  const auto answer = client.Get(path.c_str());
  return answer ? answer->body : "no answer";
}

TEST_F(Standing, HasAPageOfAllRunsAndOneOfTheOpenRun) {
  Program server("macaw-server", {"--standing", folder_.path(), "--listen", listen_, "--http",
                                  "127.0.0.1:0", "--run-http", "127.0.0.1:0"});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  EXPECT_THAT(Page(server.text(), "/"), HasSubstr("no run is open"));
  EXPECT_EQ(Admin("submit " + Plan("one")).exit, 0);
  ASSERT_TRUE(WaitForState("one", "running"));
  EXPECT_THAT(Page(server.text(), "/"), HasSubstr("the run one is open"));
  const std::string log = folder_ / "runs/one/standing.log";
  for (int i = 0; i < 600 && After(ReadFile(log).value_or(""), "status_page").empty(); ++i)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_THAT(Page(ReadFile(log).value_or(""), "/metrics"), HasSubstr("macaw_run_state"));
  EXPECT_EQ(Worker()->Wait(), 0);
  ASSERT_TRUE(WaitForState("one", "finished"));
  EXPECT_THAT(Page(server.text(), "/metrics"),
              HasSubstr("macaw_standing_runs{state=\"finished\"} 1\n"));
}

TEST_F(Standing, ARunOutlivesItsProcessAndTheStandingServer) {
  testing_support::Simulation plain("plain", {config_});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  {
    const auto server = Server();
    ASSERT_EQ(Admin("submit " + Plan("one")).exit, 0);
    ASSERT_TRUE(server->WaitFor("runs run=one"));
    const std::string text = server->text();
    const pid_t process = std::stoi(text.substr(text.find("process=") + 8));
    ::kill(process, SIGKILL);
    ASSERT_TRUE(server->WaitFor("died run=one")) << server->text();
    EXPECT_EQ(Runs()[0]["state"], "running");
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait(), 0) << server->text();
  }
  const auto server = Server();
  EXPECT_EQ(Worker()->Wait(), 0);
  ASSERT_TRUE(WaitForState("one", "finished"));
  EXPECT_EQ(DigestOf("one"), plain.digest());
}

TEST_F(Standing, ARunThatCannotRunHasFailedAndMakesRoom) {
  const auto server = Server();
  ASSERT_EQ(Admin("submit " + Plan("first")).exit, 0);
  ASSERT_EQ(Admin("submit " + Plan("second")).exit, 0);
  ASSERT_TRUE(AtomicWriteFile(folder_ / "runs/second/plan.toml", "rounds = ").ok());
  ASSERT_EQ(Admin("withdraw first").exit, 0);
  ASSERT_TRUE(WaitForState("first", "withdrawn"));
  ASSERT_TRUE(WaitForState("second", "failed"));
  EXPECT_THAT(Admin("runs").text, HasSubstr("exit code"));
}

// An address of this machine that is taken as long as this lives.
struct TakenAddress {
  TakenAddress() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(fd.get(), 1), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    text = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }
  const Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string text;
};

// An address on which no program listens.
std::string FreeAddress() { return TakenAddress().text; }

// The runs behind it would meet the same trouble.
TEST_F(Standing, ARunWhoseServerCannotStartYetKeepsItsPlace) {
  auto taken = std::make_unique<TakenAddress>();
  Program server("macaw-server",
                 {"--standing", folder_.path(), "--listen", listen_, "--run-admin", taken->text});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  ASSERT_EQ(Admin("submit " + Plan("one")).exit, 0);
  ASSERT_EQ(Admin("submit " + Plan("two")).exit, 0);
  ASSERT_TRUE(server.WaitFor("starts_again run=one")) << server.text();
  EXPECT_EQ(Runs()[0]["state"], "running");
  EXPECT_EQ(Runs()[1]["state"], "waiting");
  EXPECT_THAT(Admin("runs").text, HasSubstr("exit code 1"));
  taken.reset();
  for (const std::string name : {"one", "two"}) {
    EXPECT_EQ(Worker()->Wait(), 0);
    ASSERT_TRUE(WaitForState(name, "finished"));
  }
}

// Its own trouble or that of all: a run that no start brings to a round does not hold the others up
// for ever.
TEST_F(Standing, ARunThatNeverStartsHasFailedAndMakesRoom) {
  auto taken = std::make_unique<TakenAddress>();
  Program server("macaw-server", {"--standing", folder_.path(), "--listen", listen_, "--run-admin",
                                  taken->text, "--run-starts", "2"});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  ASSERT_EQ(Admin("submit " + Plan("bad")).exit, 0);
  ASSERT_EQ(Admin("submit " + Plan("next")).exit, 0);
  ASSERT_TRUE(server.WaitFor("starts_again run=bad")) << server.text();
  ASSERT_TRUE(WaitForState("bad", "failed"));
  ASSERT_TRUE(WaitForState("next", "failed")) << "it was begun, and meets the same";
  EXPECT_THAT(Admin("runs").text, HasSubstr("at 2 starts without a round"));
  taken.reset();
  ASSERT_EQ(Admin("submit " + Plan("good")).exit, 0);
  EXPECT_EQ(Worker()->Wait(), 0);
  ASSERT_TRUE(WaitForState("good", "finished"));
}

// Nobody but the standing server answers between runs, and the fleet lives on all the same.
TEST_F(Standing, EnrolsAndRenewsWhileNoRunIsOpen) {
  testing_support::Simulation plain("plain", {config_});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const std::string authority = folder_ / "authority", fleet = FreeAddress(), desk = FreeAddress();
  ASSERT_EQ(RunMacaw("pki init --dir " + authority).exit, 0);
  Program server("macaw-server", {"--standing", folder_.path(), "--listen", fleet, "--authority",
                                  authority, "--admin", desk});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  const auto enrol = [&](const std::string& name, const std::string& how) {
    Enrol(name, how, fleet, authority);
  };
  enrol("ada", "--role operator");
  enrol("node", "--role worker --lifetime 3s");
  const std::string node =
      folder_.Write("node.toml", absl::StrCat("[node]\nserver = \"", fleet, "\"\nidentity = \"",
                                              folder_ / "node", "\"\n", *ReadFile(config_)));
  absl::SleepFor(absl::Seconds(4));  // its certificate has ended
  Program worker("macaw-worker", {"--config", node, "--scratch", folder_ / "scratch"});
  ASSERT_TRUE(worker.WaitFor("certificate_renewed")) << worker.text();
  ASSERT_TRUE(worker.WaitFor("no run is open at this server")) << worker.text();

  const Printed submitted = RunMacaw(absl::StrCat("admin submit ", Plan("one"), " --server ", desk,
                                                  " --identity ", folder_ / "ada"));
  EXPECT_EQ(submitted.exit, 0) << submitted.text;
  ASSERT_TRUE(WaitForState("one", "finished")) << worker.text();
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(DigestOf("one"), plain.digest());
  enrol("late", "--role worker");
}

// gRPC has lines of its own about hosts that are not in a certificate.
TEST_F(Standing, AnOperatorsCallWritesNothingWhileARunIsOpen) {
  const std::string authority = folder_ / "authority", fleet = FreeAddress(), desk = FreeAddress();
  ASSERT_EQ(RunMacaw("pki init --dir " + authority).exit, 0);
  const auto start = [&] {
    auto server = std::make_unique<Program>(
        "macaw-server",
        std::vector<std::string>{"--standing", folder_.path(), "--listen", fleet, "--authority",
                                 authority, "--admin", desk, "--run-admin", FreeAddress()});
    EXPECT_TRUE(server->WaitFor("waits_for_runs")) << server->text();
    return server;
  };
  {
    const auto server = start();
    Enrol("ada", "--role operator", fleet, authority);
    ASSERT_EQ(Admin("submit " + Plan("one")).exit, 0);  // it waits for a worker
    ASSERT_TRUE(WaitForState("one", "running"));
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait(), 0) << server->text();
  }
  const auto server = start();
  for (int i = 0; i < 4; ++i) {
    const Printed runs =
        RunMacaw(absl::StrCat("admin runs --server ", desk, " --identity ", folder_ / "ada"));
    EXPECT_EQ(runs.exit, 0) << runs.text;
  }
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_THAT(server->text(), testing::Not(HasSubstr("ssl_transport_security")));
}

TEST_F(Standing, AFreePortIsOneForAllRunsAndInTheLog) {
  Program server("macaw-server", {"--standing", folder_.path(), "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  std::string address = After(server.text(), "workers_dial ");
  address = address.substr(0, address.find('\n'));
  EXPECT_THAT(address, testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  for (const std::string name : {"one", "two"}) {
    ASSERT_EQ(Admin("submit " + Plan(name)).exit, 0);
    Program worker("macaw-worker", {"--config", config_, "--server", address, "--name", "a",
                                    "--scratch", folder_ / "scratch"});
    EXPECT_EQ(worker.Wait(), 0) << worker.text();
    ASSERT_TRUE(WaitForState(name, "finished"));
  }
}

// A device keeps its clients' states of each run.
TEST_F(Standing, ADeviceDoesOneStatefulRunAfterTheOther) {
  const std::string authority = folder_ / "authority", fleet = FreeAddress();
  ASSERT_EQ(RunMacaw("pki init --dir " + authority).exit, 0);
  Program server("macaw-server",
                 {"--standing", folder_.path(), "--listen", fleet, "--authority", authority});
  ASSERT_TRUE(server.WaitFor("waits_for_runs")) << server.text();
  const Printed invite = RunMacaw("pki invite node --role worker --dir " + authority);
  const size_t code = invite.text.find("MACAW-");
  const Printed enrolled = testing_support::RunProgram(
      MACAW_BIN_DIR "/macaw-worker",
      absl::StrCat("enrol --server ", fleet, " --identity ", folder_ / "node", " ",
                   invite.text.substr(code, invite.text.find_first_of(" \n", code) - code)));
  ASSERT_EQ(enrolled.exit, 0) << enrolled.text;
  const std::string node =
      folder_.Write("node.toml", absl::StrCat("[node]\nserver = \"", fleet, "\"\nidentity = \"",
                                              folder_ / "node", "\"\n[state]\npath = \"",
                                              folder_ / "state", "\"\n", *ReadFile(config_)));
  for (const std::string name : {"one", "two"}) {
    ASSERT_EQ(Admin("submit " + Plan(name, " --set algorithm.name=scaffold")).exit, 0);
    Program worker("macaw-worker", {"--config", node, "--scratch", folder_ / "scratch"});
    EXPECT_EQ(worker.Wait(), 0) << worker.text();
    ASSERT_TRUE(WaitForState(name, "finished")) << worker.text();
  }
  EXPECT_EQ(DigestOf("one"), DigestOf("two"));
}

}  // namespace
}  // namespace macaw
