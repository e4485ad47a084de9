// `macaw admin`, `macaw doctor --server` and the status page with real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing_support::Program;
using testing_support::RunMacaw;
using Json = nlohmann::json;

class Operators : public testing::Test {
 protected:
  std::unique_ptr<Program> Server(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--run-dir", run_, "--listen", "127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto server = std::make_unique<Program>("macaw-server", arguments);
    EXPECT_TRUE(server->WaitFor("listening on")) << server->text();
    return server;
  }
  testing_support::Printed Admin(const std::string& command) const {
    return RunMacaw(absl::StrCat("admin ", command, " --run-dir ", run_));
  }

  const testing_support::TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  const std::string config_ = testing_support::WriteConfig("operators", "workers = 1\n");
};

TEST_F(Operators, ARunThatWasPausedAbortedAndDrainedEndsWithTheSameMetrics) {
  // Forty rounds, because it must still go on when it is told to end.
  const std::string text = absl::StrReplaceAll(*ReadFile(config_), {{"rounds = 3", "rounds = 40"}});
  ASSERT_TRUE(AtomicWriteFile(config_, text).ok());
  testing_support::Simulation plain("plain", {config_});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  {
    const auto server = Server({"--config", config_});
    struct stat info {};
    ASSERT_EQ(::stat((run_ + "/admin.sock").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_THAT(Admin("status").text, HasSubstr("0 of 1 worker"));
    EXPECT_THAT(Admin("pause --reason 'the lab is closed'").text, HasSubstr("pauses"));
    EXPECT_THAT(Admin("quarantine phone-7").text, HasSubstr("phone-7"));
    Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
    ASSERT_TRUE(server->WaitFor("worker_joined")) << server->text();
    const Json status = Json::parse(Admin("status --json").text);
    EXPECT_EQ(status["state"], "paused");
    EXPECT_EQ(status["nodes"][0]["name"], "a");
    std::string nodes = Admin("nodes").text;
    for (const absl::Time end = absl::Now() + absl::Minutes(1);
         !absl::StrContains(nodes, "waits for work") && absl::Now() < end;)
      nodes = Admin("nodes").text;  // it has joined, and asks for work next
    EXPECT_THAT(nodes, AllOf(HasSubstr("200"), HasSubstr("waits for work")));
    EXPECT_EQ(Admin("abort-round").exit, 1) << "no round is open";
    EXPECT_EQ(Admin("resume").exit, 0);
    EXPECT_EQ(Admin("drain").exit, 0);
    EXPECT_EQ(server->Wait(), 130) << server->text();
    EXPECT_EQ(worker.Wait(), 0) << worker.text();
  }
  const auto over = Admin("status");
  EXPECT_EQ(over.exit, 1);
  EXPECT_THAT(over.text, HasSubstr("macaw simulate --resume"));
  EXPECT_THAT(RunMacaw("log " + run_).text,
              AllOf(HasSubstr("the lab is closed"), HasSubstr("drain")));
  testing_support::Simulation resumed("resumed", {"--resume", run_});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  EXPECT_EQ(resumed.metrics(), plain.metrics());
  EXPECT_EQ(resumed.digest(), plain.digest());
  EXPECT_FALSE(std::filesystem::exists(run_ + "/admin.sock"));
  EXPECT_THAT(Admin("status").text, HasSubstr("has ended"));
}

TEST_F(Operators, AWatcherSeesTheRunToItsEnd) {
  const auto server = Server({"--config", config_});
  Program watch("macaw", {"admin", "watch", "--run-dir", run_});
  EXPECT_TRUE(watch.WaitFor("0 of 1 worker")) << watch.text();
  Program events("macaw", {"admin", "watch", "--events", "--from", "1", "--run-dir", run_});
  // It looks on before the run can end.
  ASSERT_EQ(Admin("quarantine phone-7").exit, 0);
  ASSERT_TRUE(events.WaitFor("quarantine")) << events.text();
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(watch.Wait(), 0);
  EXPECT_THAT(watch.text(), HasSubstr("ended"));
  EXPECT_TRUE(events.WaitFor("run_finished")) << events.text();
}

TEST_F(Operators, AWatcherForProgramsGetsJsonAlone) {
  const auto server = Server({"--config", config_});
  Program watch("/bin/sh", {"-c", absl::StrCat(MACAW_BIN_DIR "/macaw admin watch --json --run-dir ",
                                               run_, " 2> ", folder_ / "said")});
  EXPECT_TRUE(watch.WaitFor("0 of 1 worker")) << watch.text();
  const Json paused = Json::parse(Admin("pause --json").text, nullptr, false);
  ASSERT_TRUE(paused.is_object());
  EXPECT_THAT(paused["said"].get<std::string>(), HasSubstr("pauses"));
  EXPECT_EQ(Admin("resume").exit, 0);
  Program worker("macaw-worker", {"--run-dir", run_, "--name", "a"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(watch.Wait(), 0) << *ReadFile(folder_ / "said");
  for (const absl::string_view line : absl::StrSplit(watch.text(), '\n', absl::SkipEmpty()))
    EXPECT_TRUE(Json::parse(line, nullptr, false).is_object()) << line;
}

TEST_F(Operators, AWatcherWhoseServerIsKilledDoesNotSayThatTheRunHasEnded) {
  const auto server = Server({"--config", config_});
  Program watch("macaw", {"admin", "watch", "--run-dir", run_});
  EXPECT_TRUE(watch.WaitFor("0 of 1 worker")) << watch.text();
  server->Signal(SIGKILL);
  server->Wait();
  EXPECT_EQ(watch.Wait(), 1) << watch.text();
  EXPECT_THAT(watch.text(), HasSubstr("no server works on " + run_));
}

TEST_F(Operators, TheStatusPageNeedsATokenBeyondThisMachine) {
  const std::string open =
      testing_support::WriteConfig("open", "workers = 1\nhttp = \"0.0.0.0:0\"\n");
  Program refused("macaw-server", {"--config", open, "--run-dir", run_});
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.text(), AllOf(HasSubstr("server.http_token"), HasSubstr("0.0.0.0")));

  const std::string local =
      testing_support::WriteConfig("local", "workers = 1\nhttp = \"127.0.0.1:0\"\n");
  const auto server = Server({"--config", local});
  EXPECT_THAT(server->text(), HasSubstr("status page at http://127.0.0.1:"));
}

TEST_F(Operators, TheDoctorSaysWhatKeepsAWorkerFromItsServer) {
  const auto server = Server({"--config", config_});
  std::string address = *ReadFile(run_ + "/address");
  address.pop_back();
  const auto well = RunMacaw("doctor --server " + address);
  EXPECT_EQ(well.exit, 0) << well.text;
  EXPECT_THAT(well.text, AllOf(HasSubstr("3 rounds"), HasSubstr("protocol 1.")));
  EXPECT_THAT(RunMacaw("doctor --server 127.0.0.1:1").text, HasSubstr("listens at"));
  EXPECT_THAT(RunMacaw("doctor --server no-such-host.invalid:5").text, HasSubstr("has no address"));
  EXPECT_THAT(RunMacaw("doctor --server unix:" + run_ + "/nothing.sock").text,
              HasSubstr("missing"));
  EXPECT_THAT(RunMacaw("doctor --server unix:" + run_ + "/admin.sock").text,
              HasSubstr("server.admin"));
}

TEST_F(Operators, ReachAServerWithAnAuthorityFromElsewhereByTheirCertificates) {
  const std::string authority = folder_ / "authority", in = " --dir " + authority;
  ASSERT_EQ(RunMacaw("pki init" + in).exit, 0);
  const std::string config =
      testing_support::WriteConfig("remote", "workers = 1\nadmin = \"127.0.0.1:0\"\n");
  const auto server = Server({"--config", config, "--authority", authority});
  const auto file = [&](const char* name) {
    return std::string(absl::StripAsciiWhitespace(*ReadFile(run_ + name)));
  };
  const auto enrol = [&](const std::string& name, const std::string& role) {
    const auto invite = RunMacaw("pki invite " + name + " --role " + role + in);
    const std::vector<std::string> lines = absl::StrSplit(invite.text, '\n', absl::SkipEmpty());
    const std::string from_here = std::filesystem::relative(folder_ / name).string();
    Program worker("macaw-worker",
                   {"enrol", "--server", file("/address"), "--identity", from_here, lines.front()});
    EXPECT_EQ(worker.Wait(), 0) << worker.text();
    const std::string whole = std::filesystem::path(folder_ / name).lexically_normal().string();
    EXPECT_THAT(worker.text(), AnyOf(HasSubstr("--identity " + whole + "\n"),
                                     HasSubstr("identity = \"" + whole + "\"\n")))
        << "wherever it is pasted";
    return " --identity " + (folder_ / name);
  };
  const std::string status = "admin status --server " + file("/admin-address");
  const auto ada = RunMacaw(status + enrol("ada", "operator"));
  EXPECT_EQ(ada.exit, 0);
  EXPECT_THAT(ada.text, HasSubstr("0 of 1 worker"));
  EXPECT_THAT(RunMacaw(status + enrol("phone-7", "device")).text, HasSubstr("is no operator"));
  EXPECT_NE(RunMacaw(status).exit, 0);
}

TEST(OperatorsOfNothing, AreToldWhatIsMissing) {
  const testing_support::TemporaryFolder folder;
  EXPECT_THAT(RunMacaw("admin status --run-dir " + folder.path()).text,
              HasSubstr("is not the folder of a run"));
  EXPECT_EQ(RunMacaw("admin status").exit, 2);
  EXPECT_EQ(RunMacaw("admin").exit, 2);
  EXPECT_THAT(RunMacaw("admin status --server 127.0.0.1:1").text, HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace macaw
