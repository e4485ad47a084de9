// The whole stack over a network that breaks: an authority, a server without data, workers that
// enrol and train over TLS; and the bytes of an undisturbed simulation.
#include "testing/bad_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/shared_memory.h"
#include "testing/program.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing_support::BadNetwork;
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
  BadNetwork network(address_,
                     {.faults = {{testing_support::Fault::Kind::kCut, 300'000}}, .again = true});
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

// A model of 2.4 million weights, whose 9 MB lie in files at both ends: what a transfer continues
// with after a kill is the memory of the one before (PartialFile::Map).
class FleetOfALargeModel : public FleetOverABadNetwork {
 protected:
  static constexpr uint64_t kModelBytes =
      uint64_t{4} * (784 * 256 + 256 + 256 * 8192 + 8192 + 8192 * 10 + 10);
  static constexpr uint64_t kFrom = uint64_t{4} << 20;  // the least that files_from takes
  static constexpr char kSettings[] =
      "--set=run.rounds=1 --set=cohort.size=4 --set='model.layers=[\"flatten\", \"linear 256\", "
      "\"tanh\", \"linear 8192\", \"tanh\", \"linear 10\"]'";

  void SetUp() override {
    static_assert(kModelBytes > kFrom);
    FleetOverABadNetwork::SetUp();
    Plan(absl::StrCat(kSettings, " --set server.workers=1 --set server.durability=commit",
                      " --set server.files_from=", kFrom));
    Serve({"--config", plan_});
    network_ = std::make_unique<BadNetwork>(
        address_, testing_support::BadNetworkOptions{.bytes_per_second = 4'000'000});
  }
  void JoinTheDevice() {
    device_ = Join("a", network_->address(), absl::StrCat("files_from = ", kFrom, "\n"));
  }
  void AwaitDown(uint64_t bytes) const {
    while (network_->down() < bytes && device_->running()) std::this_thread::yield();
  }
  void AwaitUp(uint64_t bytes) const {
    while (network_->up() < bytes && device_->running()) std::this_thread::yield();
  }
  void KillTheDevice() {
    device_->Signal(SIGKILL);
    EXPECT_EQ(device_->Wait(), 128 + SIGKILL);
  }
  void StartTheDevice() { device_ = Start("a", nodes_["a"]); }
  void KillTheServerAndStartAnother() {
    Serve({"--resume"});
    network_->Redirect(address_);
  }
  void ExpectTheSimulationsModel() {
    EXPECT_EQ(device_->Wait(), 0) << device_->text();
    EXPECT_EQ(server_->Wait(), 0) << server_->text();
    const Printed undisturbed =
        RunMacaw(absl::StrCat("simulate ", config_, " ", kSettings, " --out ", folder_ / "same"));
    ASSERT_EQ(undisturbed.exit, 0) << undisturbed.text;
    const auto digest = [](const std::string& run) {
      return nlohmann::json::parse(*ReadFile(run + "/summary.json"))["model_digest"];
    };
    EXPECT_EQ(digest(run_), digest(folder_ / "same"));
    EXPECT_EQ(*ReadFile(run_ + "/metrics.jsonl"), *ReadFile(folder_ / "same/metrics.jsonl"));
  }
  // The bytes of the largest file of a folder, 0 without one. One that is mapped has its whole size
  // from the beginning, and one of frames grows.
  static uint64_t LargestFileIn(const std::string& folder) {
    uint64_t largest = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      const uint64_t size = entry.file_size(none);
      if (!none) largest = std::max(largest, size);
    }
    return largest;
  }
  // How much of the model is in its mapped file in this folder: it has a checksum of each piece
  // that is there (PartialFile). The file's name ends with the size of the blob.
  static uint64_t BeginningIn(const std::string& folder) {
    constexpr uint64_t kPiece = uint64_t{64} << 10;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename();
      uint64_t size = 0, there = 0, checksum = 0;
      if (!absl::SimpleAtoi(name.substr(name.rfind('-') + 1), &size) || size < kModelBytes)
        continue;
      std::ifstream file(entry.path(), std::ios::binary);
      file.seekg(static_cast<std::streamoff>(RoundUpToPage(size)));
      while (there < size && file.read(reinterpret_cast<char*>(&checksum), sizeof(checksum)) &&
             checksum != 0) {
        there += kPiece;
      }
      return std::min(there, size);
    }
    return 0;
  }

  std::unique_ptr<BadNetwork> network_;
  std::unique_ptr<Program> device_;
};

// The network stops within the first model, so that the kill is within it however slow this test
// is. What the file then has does not come again; what was on its way to the device may.
TEST_F(FleetOfALargeModel, ADeviceKilledInItsDownloadContinuesInTheFileThatIsItsMemory) {
  const std::string downloads = folder_ / "identity-a/downloads";
  network_->HoldDown(kModelBytes * 3 / 4);
  JoinTheDevice();
  AwaitDown(kModelBytes * 3 / 4);
  ASSERT_GE(LargestFileIn(downloads), kModelBytes) << "it is mapped";
  while (BeginningIn(downloads) < kModelBytes / 2 && device_->running()) std::this_thread::yield();
  KillTheDevice();
  const uint64_t before = network_->down();
  network_->HoldDown(~uint64_t{0});
  StartTheDevice();
  ExpectTheSimulationsModel();
  // The model to train from and that to evaluate would be two whole ones.
  EXPECT_LT(network_->down() - before, 2 * kModelBytes - kModelBytes / 4)
      << "what had arrived was sent again";
}

// From its beginning, three quarters of a model would come again.
TEST_F(FleetOfALargeModel, AServerKilledInADownloadChangesNothing) {
  JoinTheDevice();
  AwaitDown(kModelBytes * 3 / 4);
  KillTheServerAndStartAnother();
  ExpectTheSimulationsModel();
  EXPECT_LT(network_->down(), 2 * kModelBytes + kModelBytes / 2)
      << "what had arrived was sent again";
}

TEST_F(FleetOfALargeModel, TheServerAfterOneKilledInAnUploadContinuesInTheFileThatIsItsMemory) {
  JoinTheDevice();
  const std::string uploads = run_ + "/journal/uploads";
  while (LargestFileIn(uploads) < kFrom && device_->running()) std::this_thread::yield();
  const uint64_t part = LargestFileIn(uploads);
  ASSERT_GT(part, network_->up()) << "it is mapped";
  AwaitUp(part * 3 / 4);
  KillTheServerAndStartAnother();
  ExpectTheSimulationsModel();
  EXPECT_LT(network_->up(), part + part / 2) << "what had arrived was sent again";
}

// Its sums are gone with it, so the clients are trained again.
TEST_F(FleetOfALargeModel, ADeviceKilledInItsUploadTrainsAgainAndChangesNothing) {
  JoinTheDevice();
  AwaitUp(3'000'000);
  KillTheDevice();
  StartTheDevice();
  ExpectTheSimulationsModel();
}

}  // namespace
}  // namespace macaw
