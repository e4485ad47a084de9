#include "bench/load/rounds.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/common.h"
#include "bench/load/device.h"
#include "bench/load/training.h"
#include "bench/programs.h"
#include "cli/timeline/timeline.h"
#include "core/files.h"
#include "data/options.h"
#include "proto/wire/remote.h"

namespace macaw::bench {
namespace {

constexpr double kIdleSeconds = 60;  // how long heartbeats and ended polls alone are measured

// A model of 61,400 weights, as LeNet-5, and little work on it.
constexpr char kRun[] = R"([run]
name = "load"
rounds = %d
seed = 1
[data]
source = "synthetic"
[data.synthetic]
clients = %d
max_size = 50
[model]
layers = ["linear 400", "relu", "linear 90", "relu", "linear 10"]
[cohort]
size = %d
[local]
epochs = 1
batch_size = 10
lr = 0.01
[evaluation]
every = 0
)";

void Print(const char* what, const Times& times) {
  std::printf("  %-22s %8.1f ms median, %.1f 99th percentile, %.1f longest (%zu)\n", what,
              times.At(0.5) * 1e3, times.At(0.99) * 1e3, times.At(1) * 1e3, times.sorted.size());
}

void PrintRounds(const std::string& run) {
  const auto timeline = cli::ReadTimeline(run + "/timeline.json");
  Check(timeline.status(), "timeline");
  std::vector<double> seconds;
  for (const cli::Timeline::Phase& phase : timeline->phases)
    seconds.push_back((phase.closed - phase.opened) * 1e-6);
  const cli::TimeSpent spent = cli::Spent(*timeline);
  Print("a round", Times(std::move(seconds)));
  std::printf(
      "  of it, mean: prepare %.1f ms, hand out %.1f, train %.1f, commit %.1f, apply %.1f\n",
      spent.prepare * 1e-3, spent.hand_out * 1e-3, spent.train * 1e-3, spent.commit * 1e-3,
      spent.apply * 1e-3);
}

}  // namespace

void MeasureRounds(const RoundsOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  AllowDescriptors(options.devices + 600);
  const Folder folder;
  const std::string config = folder / "run.toml", plan = folder / "server.toml",
                    run = folder / "run", authority = folder / "authority";
  char text[1024];
  std::snprintf(text, sizeof(text), kRun, static_cast<int>(options.rounds),
                static_cast<int>(options.devices), static_cast<int>(options.cohort));
  Check(AtomicWriteFile(config, std::string(text)), "configuration");
  // Nobody beats before all have registered, 300 a second.
  const size_t lease_timeout = std::max<size_t>(30, options.devices / 200);
  RunProgram({ProgramPath("macaw"), "plan", config, "--set",
              absl::StrCat("server.workers=", options.devices), "--set",
              absl::StrCat("server.lease_timeout=", lease_timeout), "--set",
              "server.durability=commit", "--out", plan});

  std::vector<identity::IdentityFiles> identities(options.devices);
  std::vector<std::string> command = {
      ProgramPath("macaw-server"),
      "--config",
      plan,
      "--run-dir",
      run,
      "--listen",
      options.plain ? absl::StrCat("unix:", folder / "socket") : "127.0.0.1:0"};
  if (!options.plain) {
    Check(identity::Authority::Create(authority, "load", absl::Now()), "authority");
    const auto opened = *identity::Authority::Open(authority);
    All(options.devices, [&](size_t i) {
      identities[i] = Certify(*opened, folder / absl::StrCat("device-", i),
                              absl::StrCat("device-", i), absl::StrCat(i));
    });
    command.insert(command.end(), {"--authority", authority});
  }
  const std::string log = options.log.empty() ? folder / "server.log" : options.log;
  Program server(command, "--ready-fd", log);
  const double empty = server.Megabytes();

  data::DataOptions data;
  data.source = "synthetic";
  data.seed = 1;
  data.synthetic.clients = options.devices;
  data.synthetic.max_size = 50;
  const auto dataset = data::OpenDataset(data, {});
  Check(dataset.status(), "data");
  std::vector<Link> links;
  for (size_t i = 0; i < options.devices; ++i) {
    wire::ClientOptions dial;
    dial.server = server.address();
    if (!options.plain) dial.identity = identities[i];
    auto link = wire::Dial(dial);
    Check(link.status(), "dial");
    links.push_back(*std::move(link));
  }
  Training training(*Hello(*links[0]).run, **dataset);
  Calls calls;
  std::vector<std::unique_ptr<Device>> devices;
  for (size_t i = 0; i < options.devices; ++i) {
    devices.push_back(std::make_unique<Device>(i, std::move(links[i]), **dataset, training, calls));
  }

  // The last one comes when heartbeats alone have been measured: then the first round begins.
  const size_t early = options.devices - 1;
  const auto count = static_cast<double>(options.devices);
  double begin = Now(), cpu = server.CpuSeconds();
  All(early, [&](size_t i) { devices[i]->Register(); });
  std::printf("%zu devices registered in %.1f s, %.2f ms of the server's CPU each\n", early,
              Now() - begin, (server.CpuSeconds() - cpu) * 1e3 / count);
  Print("registering", calls.registering.Take());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < early; ++i) threads.emplace_back([&, i] { devices[i]->Run(); });
  auto hearts = std::make_unique<Hearts>(devices, early);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  (void)calls.beat.Take();
  (void)hearts->TakeLateness();
  begin = Now();
  cpu = server.CpuSeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
  const double idle_cpu = (server.CpuSeconds() - cpu) / (Now() - begin);
  const Times idle = calls.beat.Take();
  std::printf("waiting for work: server %.0f MB, %.0f kB a device, %zu open files\n",
              server.Megabytes(), (server.Megabytes() - empty) * 1024 / count,
              server.Descriptors());
  std::printf("  %.0f heartbeats a second, at most %.2f s late; %.2f of a core\n",
              static_cast<double>(idle.sorted.size()) / (Now() - begin), hearts->TakeLateness(),
              idle_cpu);
  Print("heartbeat", idle);

  begin = Now();
  cpu = server.CpuSeconds();
  devices[early]->Register();
  threads.emplace_back([&] { devices[early]->Run(); });
  // The server's end is that of the run.
  const Program::End end = server.Wait();
  const double took = Now() - begin;
  calls.gone = true;
  const double late = hearts->TakeLateness();
  for (std::thread& thread : threads) thread.join();
  hearts.reset();
  std::printf(
      "%u rounds of %u in %.1f s: server at most %.0f MB, %.2f of a core, %.0f ms a round\n",
      options.rounds, options.cohort, took, end.peak_megabytes, (end.cpu_seconds - cpu) / took,
      (end.cpu_seconds - cpu) * 1e3 / static_cast<double>(options.rounds));
  if (!end.good) Check(absl::InternalError(absl::StrCat("see --log: ", log)), "macaw-server");
  PrintRounds(run);
  std::printf(" of a device that is drawn\n");
  Print("the model down", calls.fetch.Take());
  Print("training", calls.train.Take());
  Print("its sums up, counted", calls.commit.Take());
  Print("heartbeat of anybody", calls.beat.Take());
  std::printf("  heartbeats were at most %.2f s late, %zu without an answer\n", late,
              calls.lost_beats.load());
  std::printf("  calls repeated: %zu; devices not told that the run is over: %zu\n",
              calls.repeated.load(), calls.not_told.load());

  RunProgram({ProgramPath("macaw"), "simulate", config, "--quiet", "--out", folder / "simulated"});
  const std::string ours = ModelDigest(run), simulated = ModelDigest(folder / "simulated");
  std::printf("model %.16s, simulated %.16s: %s\n", ours.c_str(), simulated.c_str(),
              ours == simulated ? "same" : "DIFFERENT");
  if (ours != simulated) std::exit(1);
}

}  // namespace macaw::bench
