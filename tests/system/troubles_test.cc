// Troubles that pass, of a real fleet over TLS: nobody has to lay a hand on it afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/isa.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Printed;
using testing_support::Program;
using testing_support::RunMacaw;
using testing_support::Simulation;

class Troubles : public testing::Test {
 protected:
  Troubles() { EXPECT_EQ(RunMacaw("pki init --dir " + authority_).exit, 0); }

  // Writes a server's file for this simulation.
  std::string Plan(const std::string& config, const std::string& more = "") const {
    const std::string plan = folder_ / "plan.toml";
    const Printed printed = RunMacaw(
        absl::StrCat("plan ", config, " --set server.durability=commit ", more, " --out ", plan));
    EXPECT_EQ(printed.exit, 0) << printed.text;
    return plan;
  }
  std::unique_ptr<Program> Server(const std::string& plan) const {
    return std::make_unique<Program>(
        "macaw-server",
        std::vector<std::string>{
            "--resume-if-begun", "--config", plan, "--run-dir", run_, "--listen",
            FileExists(run_ + "/address") ? Address() : "127.0.0.1:0", "--authority", authority_});
  }
  std::string Address() const {
    const std::string text = *ReadFile(run_ + "/address");
    return text.substr(0, text.find('\n'));
  }
  void Enrol(const std::string& name, const std::string& how = "") const {
    const Printed invite =
        RunMacaw(absl::StrCat("pki invite ", name, " ", how, " --dir ", authority_));
    const size_t code = invite.text.find("MACAW-");
    ASSERT_NE(code, std::string::npos) << invite.text;
    const Printed enrolled = testing_support::RunProgram(
        MACAW_BIN_DIR "/macaw-worker",
        absl::StrCat("enrol --server ", Address(), " --identity ", folder_ / name, " ",
                     invite.text.substr(code, invite.text.find_first_of(" \n", code) - code)));
    ASSERT_EQ(enrolled.exit, 0) << enrolled.text;
  }
  // Writes a node's file: what it says of its data, and where its server is.
  std::string Node(const std::string& name, const std::string& text) const {
    return folder_.Write(name + ".toml",
                         absl::StrCat("[node]\nserver = \"", Address(), "\"\nidentity = \"",
                                      folder_ / name, "\"\n", text));
  }
  static std::string DigestIn(const std::string& run) {
    return nlohmann::json::parse(*ReadFile(run + "/summary.json"))["model_digest"];
  }

  const testing_support::TemporaryFolder folder_;
  const std::string authority_ = folder_ / "authority", run_ = folder_ / "run";
};

// What it waits for while its clock is 40 days fast would last 40 days once the clock is right.
TEST_F(Troubles, ADeviceWhoseClockIsSetBackWhileItWaitsForItsServerFindsIt) {
  const std::string config = testing_support::WriteConfig("clock", "workers = 1\n");
  Simulation plain("plain", {config});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const std::string plan = Plan(config);
  {
    const auto server = Server(plan);
    ASSERT_TRUE(server->WaitFor("listening on")) << server->text();
    Enrol("node", "--role worker");
    server->Signal(SIGKILL);
    server->Wait();
  }
  const std::string clock = folder_.Write("clock", "3456000\n");
  Program worker("/usr/bin/env",
                 {"LD_PRELOAD=" MACAW_SET_CLOCK, "ASAN_OPTIONS=verify_asan_link_order=0",
                  "MACAW_CLOCK=" + clock, MACAW_BIN_DIR "/macaw-worker", "--config",
                  Node("node", *ReadFile(config)), "--scratch", folder_ / "scratch"});
  ASSERT_TRUE(worker.WaitFor("server_lost")) << worker.text();
  ASSERT_TRUE(AtomicWriteFile(clock, "0\n").ok());
  ASSERT_TRUE(worker.WaitFor("the clock was set back by")) << worker.text();
  const auto server = Server(plan);
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(DigestIn(run_), plain.digest());
}

// A processor that could do more waits for nobody's hand.
TEST_F(Troubles, ANodeTakesTheInstructionsOfTheRun) {
  const std::string least(Name(SupportedIsas().back()));
  const std::string config = testing_support::WriteConfig("instructions", "workers = 1\n");
  Simulation plain("plain", {config, "--set", "workers.instruction_set=" + least});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const auto server = Server(Plan(config, "--set server.instruction_set=" + least));
  ASSERT_TRUE(server->WaitFor("listening on")) << server->text();
  Enrol("node", "--role worker");
  Program worker("macaw-worker",
                 {"--config", Node("node", *ReadFile(config)), "--scratch", folder_ / "scratch"});
  EXPECT_EQ(worker.Wait(), 0) << worker.text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(DigestIn(run_), plain.digest());
  EXPECT_THAT(server->text(), HasSubstr("registry invited node=node")) << "by `macaw pki`";
}

// Exit code 1: a service manager starts it again.
TEST_F(Troubles, AnAuthorityThatIsNotThereYetIsWaitedFor) {
  const std::string plan = Plan(testing_support::WriteConfig("away", "workers = 1\n"));
  std::filesystem::rename(authority_, folder_ / "away");
  const auto early = Server(plan);
  EXPECT_EQ(early->Wait(), 1) << early->text();
  EXPECT_THAT(early->text(), HasSubstr("macaw pki restore"));
  std::filesystem::rename(folder_ / "away", authority_);
  const auto server = Server(plan);
  EXPECT_TRUE(server->WaitFor("listening on")) << server->text();
}

// Test rows in files of their own are the same rows in a fleet and in a simulation. Carl's rows do
// not say whose they are: his device is one client, called like it.
TEST_F(Troubles, DevicesWithTestFilesMakeTheRowsOfTheSimulation) {
  const std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(MACAW_SOURCE_DIR "/examples/data/activity.csv"), '\n');
  const std::vector<std::string> names = {"amara", "bella", "carl"};
  std::map<std::string, std::string> train, test;  // "": of all
  for (const std::string& name : {names[0], names[1], names[2], std::string()})
    train[name] = test[name] = lines[0] + "\n";
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string name = lines[i].substr(0, lines[i].find(','));
    if (!train.contains(name) || name.empty()) continue;
    std::map<std::string, std::string>& half = i % 4 == 0 ? test : train;
    half[name] += lines[i] + "\n";
    half[""] += lines[i] + "\n";
  }
  const auto data = [&](const std::string& name) {
    const bool whose = name != "carl";
    const auto without = [](const std::string& text) {
      std::string kept;
      for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
        absl::StrAppend(&kept, line.substr(line.find(',') + 1), "\n");
      return kept;
    };
    const std::string rows = folder_.Write(name + "rows.csv",
                                           whose ? train[name] : without(train[name])),
                      tests = folder_.Write(name + "tests.csv",
                                            whose ? test[name] : without(test[name]));
    return absl::StrCat("[data]\nsource = \"csv\"\npath = \"", rows, "\"\ntest_path = \"", tests,
                        whose ? "\"\nclient_column = \"user\"\n" : "\"\n",
                        "class_names = [\"cycling\", \"running\", \"sitting\", \"walking\"]\n");
  };
  const std::string config = folder_.Write(
      "job.toml", absl::StrCat("[run]\nname = \"activity\"\nrounds = 4\n", data(""),
                               "[model]\nname = \"logistic\"\n[cohort]\nsize = 2\n[evaluation]\n"
                               "clients = true\nevery = 2\n"));
  Simulation plain("plain", {config, "--set", "workers.processes=1"});
  ASSERT_EQ(plain.Wait(), 0) << plain.output();
  const auto server = Server(Plan(config, "--set server.workers=3"));
  ASSERT_TRUE(server->WaitFor("listening on")) << server->text();
  std::vector<std::unique_ptr<Program>> devices;
  for (const std::string& name : names) {
    Enrol(name);
    const std::string node = Node(name, "owner = true\n" + data(name));
    const Printed checked =
        testing_support::RunProgram(MACAW_BIN_DIR "/macaw-worker", "check --config " + node);
    EXPECT_EQ(checked.exit, 0) << checked.text;
    EXPECT_THAT(checked.text, HasSubstr(absl::StrCat("brings     \"", name, "\":")));
    devices.push_back(std::make_unique<Program>(
        "macaw-worker",
        std::vector<std::string>{"--config", node, "--scratch", folder_ / ("scratch-" + name)}));
  }
  for (const auto& device : devices) EXPECT_EQ(device->Wait(), 0) << device->text();
  EXPECT_EQ(server->Wait(), 0) << server->text();
  EXPECT_EQ(DigestIn(run_), plain.digest());
  const auto tested = [](const std::string& metrics) {
    const std::vector<std::string> rows = absl::StrSplit(metrics, '\n', absl::SkipEmpty());
    return nlohmann::json::parse(rows.back())["clients_test_accuracy"].dump();
  };
  EXPECT_EQ(tested(*ReadFile(run_ + "/metrics.jsonl")), tested(plain.metrics()));

  // A file numbers its clients in the order of their first rows, and a fleet by their names.
  std::vector<std::string> backwards = absl::StrSplit(train[""], '\n', absl::SkipEmpty());
  std::reverse(backwards.begin() + 1, backwards.end());
  folder_.Write("backwards.csv", absl::StrJoin(backwards, "\n") + "\n");
  const std::string other = folder_.Write(
      "other.toml", absl::StrReplaceAll(*ReadFile(config), {{"rows.csv", "backwards.csv"}}));
  EXPECT_THAT(
      RunMacaw(absl::StrCat("replay ", run_, " --out ", folder_ / "again", " --config ", other))
          .text,
      HasSubstr("sort the file by its clients"));

  // A share of its rows for all is refused before anything is asked of the server.
  const Printed refused = testing_support::RunProgram(
      MACAW_BIN_DIR "/macaw-worker",
      "check --config " +
          Node("amara", "owner = true\n" + data("amara") + "test_fraction = 0.2\n"));
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("data.test_fraction = 0.2: this node is a device"));
}

}  // namespace
}  // namespace macaw
