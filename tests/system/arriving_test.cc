// Fleets whose rounds do not wait for each other: real devices of different speeds, each with its
// own rows; devices and the server are killed, and the log is enough to simulate the run again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/files.h"
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
using testing_support::TemporaryFolder;
using testing_support::WriteConfig;

constexpr int kArriving = 6;

class ArrivingFleet : public testing::Test {
 protected:
  // `settings`: of the plan, and of a simulation of it.
  void Plan(const std::vector<std::string>& settings) {
    for (const std::string& one : settings) absl::StrAppend(&settings_, " --set '", one, "'");
    Run(absl::StrCat("plan ", config_, settings_, " --set server.workers=", kArriving + 1,
                     " --set server.durability=commit --out ", folder_ / "server.toml"));
    Run(absl::StrCat("data shards ", config_, " --set partition.clients=", kArriving, " --out ",
                     folder_ / "shards"));
    Run(absl::StrCat("data prepare ", config_, " --set partition.clients=", kArriving, " --out ",
                     folder_ / "all.safetensors"));
  }
  void Begin() {
    server_ =
        std::make_unique<Program>("macaw-server",
                                  std::vector<std::string>{"--config", folder_ / "server.toml",
                                                           "--run-dir", run_, "--listen", listen_},
                                  folder_ / "server.log");
    for (int device = 0; device < kArriving; ++device) {
      devices_.emplace_back();
      Start(device);
    }
    const std::string node =
        folder_.Write("tester.toml", absl::StrCat("[data]\nsource = \"prepared\"\npath = \"",
                                                  folder_ / "all.safetensors", "\"\n"));
    tester_ = std::make_unique<Program>(
        "macaw-worker",
        std::vector<std::string>{"--config", node, "--server", listen_, "--name", "tester",
                                 "--clients", absl::StrCat(kArriving, ":", kArriving), "--scratch",
                                 folder_ / "tester"},
        folder_ / "tester.log");
  }
  // Device i takes i + 1 times as long as device 0.
  void Start(int device) {
    const std::string name = absl::StrCat("device-", device);
    const std::string node = folder_.Write(
        name + ".toml",
        absl::StrCat("[node]\nowner = true\n[workers]\nslots = 1\n[data]\nsource = \"prepared\"\n"
                     "path = \"",
                     folder_ / "shards/", device, ".safetensors\"\n",
                     "[emulation]\npause_probability = 1.0\npause_seconds = ", 0.2 * (device + 1),
                     "\n"));
    devices_[device] = std::make_unique<Program>(
        "macaw-worker",
        std::vector<std::string>{"--config", node, "--server", listen_, "--name", name, "--scratch",
                                 folder_ / name},
        folder_ / (name + ".log"));
  }
  void KillServer() {
    server_->Signal(SIGKILL);
    server_->Wait();
    server_ = std::make_unique<Program>(
        "macaw-server",
        std::vector<std::string>{"--resume", "--run-dir", run_, "--listen", listen_},
        folder_ / "server.log");
  }
  size_t Rows() const {
    const std::string text = ReadFile(run_ + "/metrics.jsonl").value_or("");
    return static_cast<size_t>(std::ranges::count(text, '\n'));
  }
  // Waits until so many rounds have been evaluated.
  void WaitForRows(size_t rows) {
    for (int i = 0; i < 3000 && Rows() < rows; ++i) {
      ASSERT_TRUE(server_->running()) << Logs();
      absl::SleepFor(absl::Milliseconds(20));
    }
    ASSERT_GE(Rows(), rows) << Logs();
  }
  std::string Logs() const {
    std::string all = ReadFile(folder_ / "server.log").value_or("");
    for (int device = 0; device < kArriving; ++device) {
      absl::StrAppend(&all, "\n-- ", device, "\n",
                      ReadFile(folder_ / absl::StrCat("device-", device, ".log")).value_or(""));
    }
    return all;
  }
  void WaitForEnd() {
    EXPECT_EQ(server_->Wait(), 0) << Logs();
    for (const auto& device : devices_) EXPECT_EQ(device->Wait(), 0) << Logs();
    EXPECT_EQ(tester_->Wait(), 0) << ReadFile(folder_ / "tester.log").value_or("");
  }
  std::vector<nlohmann::json> MetricsRows() const {
    std::vector<nlohmann::json> rows;
    const std::string text = *ReadFile(run_ + "/metrics.jsonl");
    for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
      rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  std::string Digest() const {
    return nlohmann::json::parse(*ReadFile(run_ + "/summary.json"))["model_digest"];
  }
  Printed Replay(const std::string& name) const {
    return RunMacaw(
        absl::StrCat("replay ", run_, " --out ", folder_ / name, " --config ", config_, settings_));
  }
  static void Run(const std::string& command) {
    const Printed printed = RunMacaw(command);
    ASSERT_EQ(printed.exit, 0) << command << "\n" << printed.text;
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_ / "run", listen_ = "unix:" + folder_ / "server.sock";
  const std::string config_ = WriteConfig("arriving");
  std::string settings_;
  std::unique_ptr<Program> server_, tester_;
  std::vector<std::unique_ptr<Program>> devices_;
};

const std::vector<std::string> kModel = {absl::StrCat("partition.clients=", kArriving),
                                         "model.name=mlp", "evaluation.every=1"};

std::vector<std::string> With(std::vector<std::string> settings) {
  settings.insert(settings.begin(), kModel.begin(), kModel.end());
  return settings;
}

TEST_F(ArrivingFleet, OfUnevenDevicesDoesNotWaitAndIsSimulatedFromItsLogAfterKills) {
  Plan(With({"run.rounds=30", "run.checkpoint_every=4", "cohort.size=2", "round.mode=buffered",
             "round.concurrency=5", R"(update.codec=["topk 0.2", "bits 8"])",
             "update.feedback=none"}));
  Begin();
  WaitForRows(3);
  devices_[5]->Signal(SIGKILL);  // it has been training from the beginning
  devices_[5]->Wait();
  Start(5);
  for (const size_t rows : {6, 9, 13}) {
    WaitForRows(rows);
    KillServer();
  }
  WaitForRows(16);
  devices_[1]->Signal(SIGKILL);
  devices_[1]->Wait();
  Start(1);
  WaitForEnd();

  double oldest = 0;
  for (const nlohmann::json& row : MetricsRows())
    oldest = std::max<double>(oldest, row["staleness"]);
  EXPECT_GT(oldest, 0.4) << "slow devices train over several rounds";
  const Printed same = Replay("again");
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("and the same model: " + Digest()));
  EXPECT_EQ(RunMacaw("log " + run_).exit, 0);
  EXPECT_EQ(RunMacaw("log --json " + run_).exit, 0);
  EXPECT_EQ(RunMacaw("timeline " + run_).exit, 0);
}

TEST_F(ArrivingFleet, WithAsManyPlacesAsArrivalsIsTheSynchronousSimulationToTheByte) {
  Plan(With({"run.rounds=4", "cohort.size=3", "round.mode=buffered", "round.concurrency=3"}));
  Begin();
  WaitForEnd();
  std::vector<std::string> arguments = {config_};
  for (const std::string& one : With({"run.rounds=4", "cohort.size=3"}))
    arguments.insert(arguments.end(), {"--set", one});
  Simulation synchronous("synchronous", arguments);
  ASSERT_EQ(synchronous.Wait(), 0) << synchronous.output();
  EXPECT_EQ(Digest(), synchronous.digest());
  const std::vector<nlohmann::json> rows = MetricsRows();
  ASSERT_EQ(rows.size(), 4u);
  for (const nlohmann::json& row : rows) EXPECT_EQ(row["staleness"], 0);
  const Printed same = Replay("again");
  EXPECT_EQ(same.exit, 0) << same.text;
}

TEST_F(ArrivingFleet, SaysWhichKeysAreForSimulations) {
  const auto plan = [&](const std::string& setting) {
    return RunMacaw(absl::StrCat(
        "plan ", config_, " --set partition.clients=6 --set cohort.size=2 ",
        "--set round.mode=buffered --set ", setting, " --out ", folder_ / "refused.toml"));
  };
  for (const std::string setting :
       {"round.refill=2", "round.enough=2", "round.below_quorum=drop"}) {
    const Printed refused = plan(setting);
    EXPECT_NE(refused.exit, 0) << setting;
    EXPECT_THAT(refused.text, HasSubstr(setting.substr(0, setting.find('=')))) << setting;
  }
  // A residual would go with the round in which it was made.
  const std::string file = folder_ / "stateful.toml";
  ASSERT_EQ(RunMacaw(absl::StrCat("plan ", config_,
                                  " --set partition.clients=6 --set cohort.size=2 "
                                  "--set round.mode=buffered --set 'update.codec=[\"topk 0.1\"]' "
                                  "--set update.feedback=residual --out ",
                                  file))
                .exit,
            0);
  Program server("macaw-server",
                 {"--config", file, "--run-dir", folder_ / "stateful", "--listen", listen_});
  EXPECT_NE(server.Wait(), 0);
  EXPECT_THAT(server.text(), HasSubstr("feedback"));
}

}  // namespace
}  // namespace macaw
