// The whole stack over a network that breaks: an authority, a server without data, workers that
// enrol and train over TLS; and the bytes of an undisturbed simulation.
#include "testing/bad_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::BadNetwork;
using testing_support::Fault;
using testing_support::Printed;
using testing_support::Program;
using testing_support::RunMacaw;
using testing_support::RunProgram;
using testing_support::Simulation;
using testing_support::WriteConfig;

class FleetOverABadNetwork : public testing::Test {
 protected:
  void SetUp() override { Macaw("pki init --name test --dir " + authority_); }
  void Plan(const std::string& settings) {
    Macaw(absl::StrCat("plan ", config_, " ", settings, " --out ", plan_));
  }
  void Serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--run-dir",   run_,          "--listen",
                                          "127.0.0.1:0", "--authority", authority_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_.reset();  // killed
    std::filesystem::remove(run_ + "/address");
    server_ = std::make_unique<Program>("macaw-server", arguments);
    ASSERT_TRUE(server_->WaitFor("listening on")) << server_->text();
    const auto address = ReadFile(run_ + "/address");
    ASSERT_TRUE(address.ok()) << address.status();
    address_ = address->substr(0, address->find('\n'));
  }
  void ExpectTheSimulationsModel(const std::string& settings) const {
    Simulation undisturbed("undisturbed", {config_, settings});
    ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();
    const auto summary = nlohmann::json::parse(*ReadFile(run_ + "/summary.json"));
    EXPECT_EQ(summary["model_digest"], undisturbed.digest());
    EXPECT_EQ(*ReadFile(run_ + "/metrics.jsonl"), undisturbed.metrics());
  }
  static std::string Macaw(const std::string& arguments) {
    const Printed printed = RunProgram(MACAW_BIN_DIR "/macaw", arguments + " 2>/dev/null");
    EXPECT_EQ(printed.exit, 0) << arguments << printed.text;
    return printed.text;
  }
  // `settings`: lines of its [node].
  std::unique_ptr<Program> Join(const std::string& name, const std::string& server,
                                const std::string& settings = "") {
    const std::string identity = folder_ / ("identity-" + name);
    const std::string code = Macaw(absl::StrCat("pki invite ", name, " --role worker --clients ",
                                                name, " --dir ", authority_));
    const Printed enrolled =
        RunProgram(MACAW_BIN_DIR "/macaw-worker",
                   absl::StrCat("enrol --server ", server, " --identity ", identity, " ",
                                code.substr(0, code.find('\n'))));
    EXPECT_EQ(enrolled.exit, 0) << enrolled.text;
    const std::string node =
        WriteConfig(name, absl::StrCat("[node]\nserver = \"", server, "\"\nidentity = \"", identity,
                                       "\"\n", settings));
    return Start(name, node);
  }
  // A worker that has enrolled, under the name and with the scratch folder that it had.
  std::unique_ptr<Program> Start(const std::string& name, const std::string& node) {
    nodes_[name] = node;
    return std::make_unique<Program>(
        "macaw-worker", std::vector<std::string>{"--config", node, "--slots", "1", "--scratch",
                                                 folder_ / ("scratch-" + name)});
  }

  const testing_support::TemporaryFolder folder_;
  const std::string authority_ = folder_ / "authority", plan_ = folder_ / "server.toml",
                    run_ = folder_ / "run", config_ = WriteConfig("fleet");
  std::unique_ptr<Program> server_;
  std::string address_;
  std::map<std::string, std::string> nodes_;  // their files
};

TEST_F(FleetOverABadNetwork, ThatCutsEachConnectionAgainAndAgainEndsWithTheSimulationsModel) {
  Plan("--set server.workers=2");
  Serve({"--config", plan_});
  BadNetwork network(address_, {.faults = {{Fault::Kind::kCut, 300'000}}, .again = true});
  const auto first = Join("a", network.address()), second = Join("b", network.address());
  for (const auto& worker : {first.get(), second.get()})
    EXPECT_EQ(worker->Wait(), 0) << worker->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  EXPECT_GE(network.faults(), 6) << "at least once a round for each";
  ExpectTheSimulationsModel("--set=run.rounds=3");
}

// The sums of a worker are 200 to 250 kB. The server is killed when more than half of them have
// arrived.
TEST_F(FleetOverABadNetwork, TheRestOfAnUploadGoesToTheServerThatFollowsAKilledOne) {
  Plan("--set server.workers=1 --set run.rounds=1 --set server.durability=commit");
  Serve({"--config", plan_});
  BadNetwork network(address_, {.bytes_per_second = 400'000});
  const auto worker = Join("a", network.address());
  while (network.up() < 150'000) std::this_thread::yield();
  Serve({"--resume"});
  network.Redirect(address_);
  EXPECT_EQ(worker->Wait(), 0) << worker->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  EXPECT_LT(network.up(), 250'000 + 70'000) << "bytes that had arrived were sent again";
  EXPECT_FALSE(std::filesystem::exists(run_ + "/journal"));
  ExpectTheSimulationsModel("--set=run.rounds=1");
}

// A model of 1.6 million weights, whose 6 MB lie in files at both ends: what a transfer continues
// with after a kill is the memory of the one before (PartialFile::Map).
class FleetOfALargeModel : public FleetOverABadNetwork {
 protected:
  static constexpr uint64_t kModelBytes = uint64_t{4} * (784 * 2048 + 2048 + 2048 * 10 + 10);
  static constexpr uint64_t kFrom = uint64_t{4} << 20;  // the least that files_from takes
  // Beyond what arrives: what was in flight at the kill, TLS and all smaller messages.
  static constexpr uint64_t kBeside = uint64_t{3} << 19;

  void Begin() {
    static_assert(kModelBytes > kFrom);
    Plan(absl::StrCat(Settings(), " --set server.workers=1 --set server.durability=commit",
                      " --set server.files_from=", kFrom));
    Serve({"--config", plan_});
  }
  std::unique_ptr<Program> JoinWithFiles(const std::string& server) {
    return Join("a", server, absl::StrCat("files_from = ", kFrom, "\n"));
  }
  // One round, without an evaluation that would fetch another model.
  static std::string Settings() {
    return "--set run.rounds=1 --set cohort.size=4 --set data.test_fraction=0 --set "
           "'model.layers=[\"flatten\", \"linear 2048\", \"relu\", \"linear 10\"]'";
  }
  void ExpectTheSimulationsModel() const {
    Simulation undisturbed("undisturbed",
                           {config_, "--set", "run.rounds=1", "--set", "cohort.size=4", "--set",
                            "data.test_fraction=0", "--set",
                            R"(model.layers=["flatten", "linear 2048", "relu", "linear 10"])"});
    ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.output();
    const auto summary = nlohmann::json::parse(*ReadFile(run_ + "/summary.json"));
    EXPECT_EQ(summary["model_digest"], undisturbed.digest());
    EXPECT_EQ(*ReadFile(run_ + "/metrics.jsonl"), undisturbed.metrics());
  }
  // The bytes of the largest file below a folder: one that is mapped has its whole size from the
  // beginning, and one of frames grows.
  static uint64_t LargestFileIn(const std::string& folder) {
    uint64_t largest = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      std::error_code gone;
      if (entry.is_regular_file(gone)) largest = std::max(largest, uint64_t{entry.file_size(gone)});
    }
    return largest;
  }
};

TEST_F(FleetOfALargeModel, ADeviceKilledInItsDownloadContinuesInTheFileThatIsItsMemory) {
  Begin();
  BadNetwork network(address_, {.bytes_per_second = 4'000'000});
  auto device = JoinWithFiles(network.address());
  while (network.down() < kModelBytes * 3 / 4) std::this_thread::yield();
  device->Signal(SIGKILL);
  EXPECT_EQ(device->Wait(), 128 + SIGKILL);
  EXPECT_GE(LargestFileIn(folder_ / "scratch-a"), kModelBytes) << "it was mapped";
  device = Start("a", nodes_["a"]);
  EXPECT_EQ(device->Wait(), 0) << device->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  EXPECT_LT(network.down(), kModelBytes + kBeside) << "bytes that had arrived were sent again";
  ExpectTheSimulationsModel();
}

TEST_F(FleetOfALargeModel, TheServerAfterOneKilledInAnUploadContinuesInTheFileThatIsItsMemory) {
  Begin();
  BadNetwork network(address_, {.bytes_per_second = 4'000'000});
  const auto device = JoinWithFiles(network.address());
  while (network.up() < kModelBytes * 3 / 4) std::this_thread::yield();
  EXPECT_GE(LargestFileIn(run_), kModelBytes * 3 / 4) << "it is mapped";
  Serve({"--resume"});
  network.Redirect(address_);
  EXPECT_EQ(device->Wait(), 0) << device->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  const auto row = nlohmann::json::parse(*ReadFile(run_ + "/metrics.jsonl"));
  EXPECT_LT(network.up(), row["bytes_up"].get<uint64_t>() + kBeside)
      << "bytes that had arrived were sent again";
  ExpectTheSimulationsModel();
}

// Its sums are gone with it. The clients are trained again, to the same bytes, of which a part is
// at the server.
TEST_F(FleetOfALargeModel, ADeviceKilledInItsUploadTrainsAgainAndChangesNothing) {
  Begin();
  BadNetwork network(address_, {.bytes_per_second = 4'000'000});
  auto device = JoinWithFiles(network.address());
  while (network.up() < kModelBytes * 3 / 4) std::this_thread::yield();
  device->Signal(SIGKILL);
  EXPECT_EQ(device->Wait(), 128 + SIGKILL);
  device = Start("a", nodes_["a"]);
  EXPECT_EQ(device->Wait(), 0) << device->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  ExpectTheSimulationsModel();
}

TEST_F(FleetOfALargeModel, AServerKilledInADownloadChangesNothing) {
  Begin();
  BadNetwork network(address_, {.bytes_per_second = 4'000'000});
  const auto device = JoinWithFiles(network.address());
  while (network.down() < kModelBytes * 3 / 4) std::this_thread::yield();
  Serve({"--resume"});
  network.Redirect(address_);
  EXPECT_EQ(device->Wait(), 0) << device->text();
  EXPECT_EQ(server_->Wait(), 0) << server_->text();
  EXPECT_LT(network.down(), kModelBytes + kBeside) << "bytes that had arrived were sent again";
  ExpectTheSimulationsModel();
}

}  // namespace
}  // namespace macaw
