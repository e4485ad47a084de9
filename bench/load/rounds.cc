#include "bench/load/rounds.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "bench/load/common.h"
#include "bench/programs.h"
#include "cli/timeline/timeline.h"
#include "core/clock.h"
#include "core/executor.h"
#include "core/files.h"
#include "core/work_counter.h"
#include "data/options.h"
#include "data/subset.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/vector_codec.h"
#include "proto/wire/remote.h"
#include "training/api/round_local.h"
#include "training/backends.h"
#include "worker/lane.h"
#include "worker/phase.h"

namespace macaw::bench {
namespace {

constexpr Duration kPoll = std::chrono::seconds(30);  // as worker/session.cc
constexpr double kBeatEvery = 1;  // seconds; as worker/heartbeats.h, until the server says
constexpr Duration kPause = std::chrono::milliseconds(500);
constexpr double kIdleSeconds = 60;  // how long heartbeats and ended polls alone are measured
constexpr size_t kTrainers = 2;

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

// Measured times, by what was done. Thread-safe.
class Measured {
 public:
  void Add(double seconds) {
    absl::MutexLock lock(&mutex_);
    seconds_.push_back(seconds);
  }
  Times Take() {
    absl::MutexLock lock(&mutex_);
    return Times(std::exchange(seconds_, {}));
  }

 private:
  absl::Mutex mutex_;
  std::vector<double> seconds_ ABSL_GUARDED_BY(mutex_);
};

void Print(const char* what, const Times& times) {
  std::printf("  %-22s %8.1f ms median, %.1f 99th percentile, %.1f longest (%zu)\n", what,
              times.At(0.5) * 1e3, times.At(0.99) * 1e3, times.At(1) * 1e3, times.sorted.size());
}

// What a registration fixes, for all devices together.
class Training {
 public:
  Training(const RunPlan& run, const data::Dataset& dataset) : dataset_(dataset), backends_("") {
    registry_.AddBuiltin(algorithms::BuiltinAlgorithms());
    context_.run = run;
    context_.backends = &backends_;
    const auto spec = models::BuildSpec(run.model, run.dtype);
    Check(spec.status(), "model");
    context_.spec = *spec;
    const algorithms::Description* const algorithm = *registry_.Find(run.algorithm.name);
    const algorithms::Setup setup = algorithms::SetupOf(run, context_.spec.layout);
    auto schema = algorithms::MakeSchema(*algorithm, setup);
    Check(schema.status(), "algorithm");
    context_.schema = *std::move(schema);
    auto client = algorithm->client(setup);
    Check(client.status(), "algorithm");
    context_.algorithm = *std::move(client);
    auto needs = training::TrainerSetup::Of(run, context_.spec, dataset.info().feature_type);
    const auto profile = backends_.ProfileOf(needs);
    Check(profile.status(), "back end");
    profile_ = *profile;
    for (Trainer& trainer : trainers_) {
      trainer.executor.Post([this, &trainer] {
        auto lane = worker::Lane::Make(context_, dataset_, trainer.work);
        Check(lane.status(), "lane");
        trainer.lane.emplace(*std::move(lane));
      });
    }
  }

  const NumericProfile& profile() const { return profile_; }
  const algorithms::Schema& schema() const { return context_.schema; }

  std::shared_ptr<worker::PhaseContext> Open(const fleet::TrainingLease& lease) const {
    auto phase = std::make_shared<worker::PhaseContext>();
    phase->round = lease.round;
    phase->phase = lease.phase;
    phase->order = {.max_weight = lease.max_weight,
                    .total_weight = lease.total_weight,
                    .max_multiplicity = lease.max_multiplicity,
                    .total_multiplicity = lease.total_multiplicity};
    phase->local = training::RoundLocal(context_.run, lease.round);
    phase->broadcast = lease.broadcast;
    return phase;
  }
  // Once the broadcast's bytes are there.
  void ReadBroadcast(worker::PhaseContext& phase) const {
    const std::vector<LayoutPtr> layouts = algorithms::DownLayouts(context_.schema, phase.phase);
    std::vector<ConstVectorView> vectors;
    for (size_t i = 0; i < layouts.size(); ++i) {
      const auto one =
          fleet::DecodeVectors(phase.broadcast.channels[i].bytes->bytes(), {&layouts[i], 1});
      Check(one.status(), "broadcast");
      vectors.push_back(one->front());
    }
    phase.vectors = algorithms::ParallelToDown(context_.schema, phase.phase, vectors);
  }

  // Trains the clients on one of the threads and returns the part.
  fleet::Part Train(const worker::PhaseContext& phase,
                    const std::vector<fleet::Assignment>& assignments, size_t device) {
    std::promise<fleet::Part> done;
    std::future<fleet::Part> trained = done.get_future();
    Trainer& trainer = trainers_[device % kTrainers];
    trainer.executor.Post(
        [&phase, &assignments, &trainer, device, done = std::move(done)]() mutable {
          for (fleet::Assignment assignment : assignments) {
            assignment.place = device;  // the dataset here is everybody's
            const worker::LeasedClient client{assignment, SteadyClock().Now()};
            Check(trainer.lane->Train(phase, /*first_slot=*/0, {&client, 1}), "training");
          }
          worker::LaneResult result = trainer.lane->TakeResult();
          fleet::Part part;
          part.round = phase.round;
          part.phase = phase.phase;
          part.broadcast = phase.broadcast.name;
          part.included = std::move(result.included);
          part.left_out = std::move(result.left_out);
          if (!part.included.empty()) part.sums = fleet::Blob::Of(result.sum->Encode());
          done.set_value(std::move(part));
        });
    return trained.get();
  }

 private:
  struct Trainer {
    WorkCounter work;
    std::optional<worker::Lane> lane;
    Executor executor{"trainer", 1};  // destroyed first
  };
  const data::Dataset& dataset_;
  training::Backends backends_;
  algorithms::Registry registry_;
  worker::RunContext context_;
  NumericProfile profile_;
  Trainer trainers_[kTrainers];
};

// Of all devices.
struct Calls {
  Measured registering, beat, fetch, train, commit;
  std::atomic<size_t> repeated = 0, lost_beats = 0;  // because nobody answered
  std::atomic<bool> gone = false;                    // the server has ended
  std::atomic<size_t> not_told = 0;  // devices that had not heard by then that the run is over
};

// A device, as worker/session.cc is one: two threads use it, one that works and one that sends the
// heartbeats.
class Device {
 public:
  Device(size_t number, Link link, const data::Dataset& dataset, Training& training, Calls& calls)
      : number_(number),
        link_(std::move(link)),
        dataset_(dataset),
        training_(training),
        calls_(calls) {}

  void Register() {
    const auto rows = data::SubsetOf(dataset_, {number_, number_ + 1, /*central_test=*/false});
    Check(rows.status(), "rows");
    const data::DatasetInfo& info = (*rows)->info();
    fleet::ClientTable table;
    table.rows = {(*rows)->Examples(ClientId(0), data::Split::kTrain)};
    table.names = {(*rows)->ClientName(ClientId(0))};
    fleet::RegisterRequest request;
    request.name = absl::StrCat("device-", number_);
    request.incarnation = number_ + 1;
    request.profile = training_.profile();
    request.input_shape = info.input_shape;
    request.classes = info.classes;
    request.data_digest = info.digest;
    request.clients = 1;
    request.table = fleet::Blob::Of(table.Encode());
    request.owner = true;
    const double begin = Now();
    auto reply = link_->Register(request);
    while (absl::IsUnavailable(reply.status())) {
      Repeat();
      reply = link_->Register(request);
    }
    Check(reply.status(), "register");
    calls_.registering.Add(Now() - begin);
    session_ = reply->session;
  }

  // Until the run is over.
  void Work() {
    std::optional<fleet::LeaseReply> reply;
    while (true) {
      if (!reply.has_value()) reply = Lease();
      const fleet::LeaseReply work = *std::exchange(reply, std::nullopt);
      if (work.next == fleet::Next::kFinished) return;
      if (work.next == fleet::Next::kRegister)
        Check(absl::AbortedError("the server has forgotten a device"), "lease");
      if (work.training.has_value()) reply = TrainAndCommit(*work.training);
    }
  }

  // Sends a heartbeat. Returns when to send the next one, in seconds.
  double Beat() {
    fleet::HeartbeatRequest request;
    request.session = session_;
    request.progress = progress_;
    request.memory_bytes = 1 << 24;
    const double begin = Now();
    const auto reply = link_->Heartbeat(request);
    if (reply.ok()) {
      calls_.beat.Add(Now() - begin);
      if (reply->heartbeat_every > Duration{}) return ToSeconds(reply->heartbeat_every);
    } else if (!over_) {
      ++calls_.lost_beats;
    }
    return kBeatEvery;
  }

  void Run() {
    Work();
    over_ = true;
  }
  bool over() const { return over_; }

 private:
  fleet::LeaseRequest Ask(Duration wait) const {
    fleet::LeaseRequest request;
    request.session = session_;
    request.wanted = 1;
    request.wait = wait;
    return request;
  }

  // Before a call that nobody has answered is repeated.
  void Repeat() {
    ++calls_.repeated;
    std::this_thread::sleep_for(kPause);
  }

  fleet::LeaseReply Lease() {
    while (true) {
      auto reply = link_->Lease(Ask(kPoll));
      if (reply.ok()) return *std::move(reply);
      if (!absl::IsUnavailable(reply.status())) Check(reply.status(), "lease");
      if (calls_.gone) {
        ++calls_.not_told;
        fleet::LeaseReply over;
        over.next = fleet::Next::kFinished;
        return over;
      }
      Repeat();
    }
  }

  std::optional<fleet::LeaseReply> TrainAndCommit(const fleet::TrainingLease& lease) {
    const auto phase = training_.Open(lease);
    double begin = Now();
    for (fleet::Blob& channel : phase->broadcast.channels) {
      auto blob = link_->Fetch(channel);
      Check(blob.status(), "fetch");
      channel = *std::move(blob);
    }
    calls_.fetch.Add(Now() - begin);
    training_.ReadBroadcast(*phase);
    begin = Now();
    fleet::CommitRequest request;
    request.session = session_;
    request.commit_id = ++commits_;
    request.part = training_.Train(*phase, lease.assignments, number_);
    calls_.train.Add(Now() - begin);
    ++progress_;
    request.ask = Ask(/*wait=*/{});  // so that the time is the commit's alone
    begin = Now();
    while (true) {
      auto reply = link_->Commit(request);
      if (absl::IsUnavailable(reply.status())) {
        if (calls_.gone) return std::nullopt;  // Lease ends
        Repeat();
        continue;
      }
      Check(reply.status(), "commit");
      calls_.commit.Add(Now() - begin);
      if (reply->verdict != fleet::Verdict::kAccepted &&
          reply->verdict != fleet::Verdict::kDuplicate) {
        Check(absl::AbortedError(reply->reason), "commit");
      }
      return std::move(reply->lease);
    }
  }

  const size_t number_;
  const Link link_;
  const data::Dataset& dataset_;
  Training& training_;
  Calls& calls_;
  SessionId session_;
  uint64_t commits_ = 0;
  std::atomic<uint64_t> progress_ = 0;
  std::atomic<bool> over_ = false;
};

// Sends the devices' heartbeats on threads of its own.
class Hearts {
 public:
  // Of the first `count` devices.
  Hearts(std::vector<std::unique_ptr<Device>>& devices, size_t count) : devices_(devices) {
    for (size_t t = 0; t < kThreads; ++t)
      threads_.emplace_back([this, t, count] { Loop(t, count); });
  }
  ~Hearts() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // How late the latest heartbeat since the last call was sent, in seconds: this process may be
  // too slow to send so many.
  double TakeLateness() { return late_.exchange(0); }

 private:
  void Loop(size_t thread, size_t count) {
    NameThisThread("hearts");
    std::set<std::pair<double, size_t>> due;  // by time
    for (size_t i = thread; i < count; i += kThreads) {
      const double share = static_cast<double>(i) / static_cast<double>(count);
      due.emplace(Now() + kBeatEvery * share, i);
    }
    while (!stop_ && !due.empty()) {
      const auto [time, device] = *due.begin();
      due.erase(due.begin());
      const double left = time - Now();
      if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
      double late = late_;
      while (-left > late && !late_.compare_exchange_weak(late, -left)) continue;
      if (devices_[device]->over()) continue;
      const double every = devices_[device]->Beat();
      due.emplace(std::max(time + every, Now()), device);
    }
  }

  std::vector<std::unique_ptr<Device>>& devices_;
  std::atomic<bool> stop_ = false;
  std::atomic<double> late_ = 0;
  std::vector<std::thread> threads_;
};

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
