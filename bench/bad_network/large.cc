#include "bench/bad_network/large.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/programs.h"
#include "core/files.h"
#include "testing/bad_network.h"

namespace macaw::bench {
namespace {

using testing_support::BadNetwork;
using testing_support::BadNetworkOptions;
using testing_support::Fault;

// 250,727,610 weights: 60·15600 + 15600, 15600·16000 + 16000, 16000·10 + 10.
constexpr char kRun[] = R"([run]
name = "large"
rounds = 1
seed = 1
[data]
source = "synthetic"
[data.synthetic]
clients = 1
max_size = 10
[model]
layers = ["linear 15600", "relu", "linear 16000", "relu", "linear 10"]
[cohort]
size = 1
[local]
epochs = 1
batch_size = 10
lr = 0.01
[evaluation]
every = 0
)";
constexpr uint64_t kDown = 250'727'610 * uint64_t{4}, kUp = 250'727'610 * uint64_t{8};
constexpr uint64_t kRate = 16'000'000;
constexpr uint64_t kOthers = 4'000'000;  // more than calls and TLS carry beside the blobs

// When a transfer began and ended, seen from outside.
class Watch {
 public:
  Watch(uint64_t begin, uint64_t end) : begin_at_(begin), end_at_(end) {}
  void See(uint64_t carried) {
    if (began_ == 0 && carried >= begin_at_) began_ = Now();
    if (ended_ == 0 && carried >= end_at_) ended_ = Now();
  }
  double seconds() const { return ended_ - began_; }
  double ended() const { return ended_; }
  double began() const { return began_; }

 private:
  const uint64_t begin_at_, end_at_;
  double began_ = 0, ended_ = 0;
};

}  // namespace

void MeasureLarge() {
  const Folder folder;
  const std::string config = folder / "run.toml", plan = folder / "server.toml",
                    run = folder / "run", node = folder / "node.toml", macaw = ProgramPath("macaw");
  Check(AtomicWriteFile(config, std::string(kRun)), "configuration");
  RunProgram({macaw, "plan", config, "--set", "server.workers=1", "--set",
              "server.durability=commit", "--out", plan});
  RunProgram({macaw, "data", "shards", config, "--out", folder / "shards"});
  Check(identity::Authority::Create(folder / "authority", "bench", absl::Now()), "authority");
  const auto authority = identity::Authority::Open(folder / "authority");
  Check(authority.status(), "authority");
  Certify(**authority, folder / "identity", "device", "0");

  Program server({ProgramPath("macaw-server"), "--config", plan, "--run-dir", run, "--listen",
                  "127.0.0.1:0", "--authority", folder / "authority"},
                 "--ready-fd", /*log=*/"");
  BadNetworkOptions options;
  options.bytes_per_second = kRate;
  options.faults = {{Fault::Kind::kCut, kDown / 2}, {Fault::Kind::kCut, kDown / 2 + kUp / 2}};
  BadNetwork network(server.address(), options);
  Check(AtomicWriteFile(
            node,
            absl::StrCat("[node]\nserver = \"", network.address(),
                         "\"\nidentity = \"identity\"\nowner = true\n", "[workers]\nslots = 1\n",
                         "[data]\nsource = \"prepared\"\n", "path = \"shards/0.safetensors\"\n")),
        "node file");
  Check(MakeDirectories(folder / "scratch"), "folder");
  Program worker({ProgramPath("macaw-worker"), "--config", node, "--scratch", folder / "scratch",
                  "--state", folder / "state"});

  const double begin = Now();
  Watch down(kOthers, kDown), up(kOthers, kUp);
  while (server.Runs()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    down.See(network.down());
    up.See(network.up());
    if (!worker.Runs() && !worker.Wait().good) Check(absl::InternalError("it failed"), "worker");
  }
  const double took = Now() - begin;
  if (!server.Wait().good || !worker.Wait().good)
    Check(absl::InternalError("one of them failed"), "server or worker");
  std::printf("down %.0f MB in %.1f s, training %.1f s, up %.0f MB in %.1f s, all %.1f s\n",
              kDown * 1e-6, down.seconds(), up.began() - down.ended(), kUp * 1e-6, up.seconds(),
              took);
  std::printf("carried beyond the blobs: down %.1f MB, up %.1f MB; %d connections, %d cut\n",
              1e-6 * (static_cast<double>(network.down()) - static_cast<double>(kDown)),
              1e-6 * (static_cast<double>(network.up()) - static_cast<double>(kUp)),
              network.connections(), network.faults());
  std::printf("at most: server %.0f MB, worker %.0f MB; processor time %.0f s, %.0f s\n",
              server.Wait().peak_megabytes, worker.Wait().peak_megabytes, server.Wait().cpu_seconds,
              worker.Wait().cpu_seconds);
  std::fflush(stdout);
  if (network.faults() != 2) Check(absl::InternalError("the line was not cut twice"), "network");

  const std::string ours = ModelDigest(run);
  RunProgram({macaw, "simulate", config, "--quiet", "--out", folder / "simulated"});
  const std::string simulated = ModelDigest(folder / "simulated");
  std::printf("model %.16s, simulated %.16s: %s\n", ours.c_str(), simulated.c_str(),
              ours == simulated ? "same" : "DIFFERENT");
  if (ours != simulated) std::exit(1);
}

}  // namespace macaw::bench
