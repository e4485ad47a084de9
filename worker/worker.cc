#include "worker/worker.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/mutex.h"
#include "core/status.h"
#include "proto/fleet/vector_codec.h"
#include "training/api/schedule.h"
#include "training/api/trainer.h"
#include "worker/slot_pool.h"
#include "worker/state_keeper.h"

namespace macaw::worker {
namespace {

constexpr Duration kPoll = std::chrono::seconds(30);
constexpr Duration kPulse = std::chrono::seconds(1);  // at most this long between two heartbeats
constexpr size_t kCachedBlobs = 3;

// How a session ended.
enum class SessionEnd : uint8_t { kRunOver, kStopRequested, kLost };

// Sends heartbeats on a thread of its own until destroyed. `beat` returns false to stop early.
class Heart {
 public:
  Heart(Duration every, std::function<bool()> beat)
      : every_(every), beat_(std::move(beat)), thread_([this] { Loop(); }) {}
  ~Heart() {
    {
      MutexLock lock(&mutex_);
      closing_ = true;
    }
    thread_.join();
  }

 private:
  void Loop() {
    NameThisThread("heartbeat");
    while (beat_()) {
      MutexLock lock(&mutex_);
      mutex_.AwaitFor(every_, [this] { return closing_; });
      if (closing_) return;
    }
  }
  const Duration every_;
  const std::function<bool()> beat_;
  Mutex mutex_;
  bool closing_ = false;
  std::thread thread_;
};

// Calls that are repeated while nobody answers: a server may be starting, restarting or busy.
class PatientCalls {
 public:
  PatientCalls(Duration patience, std::stop_token stop)
      : patience_(patience), stop_(std::move(stop)) {}

  // Repeats a call while nobody answers, for as long as the options say.
  template <typename Call>
  auto Repeat(const Call& call) const -> decltype(call()) {
    const TimePoint give_up = SteadyClock().Now() + patience_;
    Duration pause = std::chrono::milliseconds(50);
    while (true) {
      auto result = call();
      const bool unanswered =
          absl::IsUnavailable(result.status()) || absl::IsDeadlineExceeded(result.status());
      if (result.ok() || !unanswered || stop_.stop_requested()) return result;
      if (SteadyClock().Now() + pause >= give_up) {
        return absl::UnavailableError(absl::StrCat("the server has not answered for ",
                                                   ToSeconds(patience_),
                                                   " s: ", result.status().message()));
      }
      WaitFor(pause);
      pause = std::min<Duration>(pause * 2, std::chrono::seconds(2));
    }
  }

 private:
  // Returns early when a stop is requested.
  void WaitFor(Duration pause) const {
    Mutex mutex;
    bool woken = false;
    const std::stop_callback wake(stop_, [&] {
      MutexLock lock(&mutex);
      woken = true;
    });
    MutexLock lock(&mutex);
    mutex.AwaitFor(pause, [&] { return woken; });
  }

  const Duration patience_;
  const std::stop_token stop_;
};

class Session {
 public:
  Session(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
          RunningMarker& marker, std::stop_token stop, const RunContext& context,
          const fleet::RegisterReply& registration, uint64_t* commits)
      : options_(options),
        dataset_(dataset),
        link_(link),
        marker_(marker),
        stop_(std::move(stop)),
        context_(context),
        session_(registration.session),
        heartbeat_every_(std::min(registration.heartbeat_every, kPulse)),
        commits_(commits) {}

  absl::StatusOr<SessionEnd> Run() {
    MACAW_ASSIGN_OR_RETURN(
        pool_, SlotPool::Start(context_, dataset_, options_.slots, options_.slowdown, marker_));
    absl::StatusOr<SessionEnd> end = SessionEnd::kLost;
    {
      // Gives everything back before it closes the link, which wakes a call that is waiting for
      // work.
      const std::stop_callback leave(stop_, [this] {
        pool_->Interrupt();
        (void)link_.Release(
            {.session = session_, .leaving = true});  // a lost message costs one lease's time
        link_.Shutdown();
      });
      Heart heart(heartbeat_every_, [this] { return Beat(); });
      end = Work();
    }
    if (end.ok() && *end == SessionEnd::kRunOver) Beat();  // the last word on memory
    pool_->Clear();
    return end;
  }

 private:
  // Asks for work while slots still have some, so that a slot rarely waits for a round trip;
  // commits when told to.
  absl::StatusOr<SessionEnd> Work() {
    bool commit_due = false;
    while (true) {
      if (stop_.stop_requested()) return SessionEnd::kStopRequested;
      if (over_) return SessionEnd::kRunOver;
      if (lost_) return SessionEnd::kLost;
      MACAW_RETURN_IF_ERROR(pool_->error());
      if (commit_due) {
        if (!pool_->WaitIdle()) continue;
        MACAW_ASSIGN_OR_RETURN(const bool known, Commit());
        if (!known) return SessionEnd::kLost;
        commit_due = false;
        continue;
      }
      if (!pool_->WaitForQueueBelow(options_.slots - 1)) continue;
      MACAW_ASSIGN_OR_RETURN(fleet::LeaseReply reply, Lease());
      if (context_.states != nullptr && !reply.deletable.empty())
        context_.states->Delete(std::move(reply.deletable));
      switch (reply.next) {
        case fleet::Next::kFinished:
          return SessionEnd::kRunOver;
        case fleet::Next::kRegister:
          return SessionEnd::kLost;
        case fleet::Next::kWait:
          break;
        case fleet::Next::kCommit:
          commit_due = true;
          break;
        case fleet::Next::kWork: {
          MACAW_ASSIGN_OR_RETURN(commit_due, Accept(reply));
          break;
        }
      }
    }
  }

  absl::StatusOr<fleet::LeaseReply> Lease() {
    fleet::LeaseRequest request{.session = session_, .wanted = options_.slots};
    request.running = static_cast<uint32_t>(pool_->held());
    for (const fleet::Blob& blob : cache_) request.have.push_back(blob.digest);
    return calls_.Repeat([&] { return link_.Lease(request, kPoll); });
  }

  // True: commit once this is done, without asking again.
  absl::StatusOr<bool> Accept(const fleet::LeaseReply& reply) {
    if (reply.evaluation.has_value()) {
      absl::StatusOr<std::shared_ptr<const EvaluationContext>> evaluation = Open(*reply.evaluation);
      // A model that is no longer served is of a round long over; its tasks have gone to others.
      if (!evaluation.ok() && !absl::IsNotFound(evaluation.status())) return evaluation.status();
      if (evaluation.ok()) {
        Expect(reply.evaluation->tasks);
        pool_->Enqueue(*std::move(evaluation), reply.evaluation->tasks);
      }
    }
    if (reply.training.has_value()) {
      absl::StatusOr<std::shared_ptr<const PhaseContext>> opened = Open(*reply.training);
      if (absl::IsNotFound(opened.status())) {  // a lease of a round that is long over
        GiveBack(*reply.training);
        return pool_->held() == 0;
      }
      MACAW_ASSIGN_OR_RETURN(auto phase, std::move(opened));
      Expect(reply.training->assignments);
      pool_->Enqueue(std::move(phase), reply.training->assignments);
      return reply.training->last;
    }
    // Evaluation alone: its results should not wait for the next round.
    return pool_->held() == 0;
  }

  // What the slots will read next, in the order of their queue.
  template <typename Work>
  void Expect(const std::vector<Work>& work) {
    if (context_.states == nullptr) return;
    std::vector<Attempt> versions;
    for (const Work& item : work) versions.push_back({item.client, item.state_version});
    context_.states->Expect(versions);
  }

  void GiveBack(const fleet::TrainingLease& lease) {
    fleet::ReleaseRequest request{.session = session_};
    for (const fleet::Assignment& assignment : lease.assignments) {
      request.attempts.push_back({assignment.client, assignment.fence});
    }
    (void)link_.Release(request);  // a lost message costs one lease's time
  }

  absl::StatusOr<std::shared_ptr<const PhaseContext>> Open(const fleet::TrainingLease& lease) {
    if (phase_ != nullptr && phase_->round == lease.round && phase_->phase == lease.phase)
      return phase_;
    auto phase = std::make_shared<PhaseContext>();
    phase->round = lease.round;
    phase->phase = lease.phase;
    phase->order = {.max_weight = lease.max_weight,
                    .total_weight = lease.total_weight,
                    .max_multiplicity = lease.max_multiplicity,
                    .total_multiplicity = lease.total_multiplicity};
    phase->local = context_.run.local;
    phase->local.lr *= training::ScheduleFactor(phase->local.lr_schedule, lease.round.value);
    std::vector<LayoutPtr> layouts;
    for (const auto& down : context_.schema.down) layouts.push_back(down.layout);
    MACAW_ASSIGN_OR_RETURN(phase->broadcast, Fetch(lease.broadcast));
    MACAW_ASSIGN_OR_RETURN(phase->vectors,
                           fleet::DecodeVectors(phase->broadcast.bytes->bytes(), layouts));
    phase_ = std::move(phase);
    return phase_;
  }

  absl::StatusOr<std::shared_ptr<const EvaluationContext>> Open(
      const fleet::EvaluationLease& lease) {
    auto evaluation = std::make_shared<EvaluationContext>();
    evaluation->round = lease.round;
    evaluation->local = context_.run.local;
    evaluation->local.lr *=
        training::ScheduleFactor(evaluation->local.lr_schedule, lease.round.value);
    if (!lease.model.named()) return evaluation;  // only states are asked for
    MACAW_ASSIGN_OR_RETURN(evaluation->blob, Fetch(lease.model));
    const LayoutPtr layouts[] = {context_.spec.layout};
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                           fleet::DecodeVectors(evaluation->blob.bytes->bytes(), layouts));
    evaluation->model = views[0];
    return evaluation;
  }

  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) {
    for (const fleet::Blob& cached : cache_) {
      if (cached.digest == blob.digest) return cached;
    }
    MACAW_ASSIGN_OR_RETURN(fleet::Blob fetched, calls_.Repeat([&] { return link_.Fetch(blob); }));
    cache_.push_back(fetched);
    if (cache_.size() > kCachedBlobs) cache_.pop_front();
    return fetched;
  }

  // False: the server no longer knows this session.
  absl::StatusOr<bool> Commit() {
    MACAW_ASSIGN_OR_RETURN(Harvest harvest, pool_->TakeHarvest());
    if (harvest.empty()) return true;
    // States first: what a part names must be there to read, whatever happens next.
    if (context_.states != nullptr) MACAW_RETURN_IF_ERROR(context_.states->Fence());
    fleet::CommitRequest request{.session = session_,
                                 .commit_id = ++*commits_,
                                 .evaluations = std::move(harvest.evaluations)};
    if (harvest.phase != nullptr) {
      fleet::Part part{.round = harvest.phase->round,
                       .phase = harvest.phase->phase,
                       .broadcast = harvest.phase->broadcast.digest,
                       .included = std::move(harvest.included),
                       .left_out = std::move(harvest.left_out)};
      if (harvest.sum.has_value()) part.sums = fleet::Blob::Of(harvest.sum->Encode());
      request.part = std::move(part);
    }
    MACAW_ASSIGN_OR_RETURN(const fleet::CommitReply reply,
                           calls_.Repeat([&] { return link_.Commit(request); }));
    pool_->Settle();
    if (reply.verdict == fleet::Verdict::kRegister) return false;
    if (reply.verdict == fleet::Verdict::kRefused) {
      // The same work would be refused again: better to end with the reason than to train for ever.
      return absl::AbortedError(absl::StrCat("the server refused a commit: ", reply.reason));
    }
    if (reply.verdict == fleet::Verdict::kStale) {
      // The server has taken the clients back; there is nothing left here to repeat.
      log_.Warning(absl::StrCat("commit_turned_down ", reply.reason));
    }
    return true;
  }

  bool Beat() {
    fleet::HeartbeatRequest request{
        .session = session_, .held = pool_->Queued(), .started = pool_->started()};
    if (const auto bytes = ProportionalSetSize(); bytes.ok()) request.memory_bytes = *bytes;
    const absl::StatusOr<fleet::HeartbeatReply> reply = link_.Heartbeat(request);
    if (!reply.ok()) return true;  // the working thread finds out by itself, and decides
    if (reply->stop || !reply->known) {
      (reply->stop ? over_ : lost_) = true;
      pool_->Interrupt();
      return false;
    }
    pool_->Drop(reply->dropped);
    return true;
  }

  const Options& options_;
  const data::Dataset& dataset_;
  fleet::FleetLink& link_;
  RunningMarker& marker_;
  const std::stop_token stop_;
  const RunContext& context_;
  const WorkerId session_;
  const Duration heartbeat_every_;
  uint64_t* const commits_;
  const Logger log_{"worker"};
  const PatientCalls calls_{options_.reconnect_for, stop_};
  std::unique_ptr<SlotPool> pool_;
  std::shared_ptr<const PhaseContext> phase_;
  std::deque<fleet::Blob> cache_;
  std::atomic<bool> over_ = false;
  std::atomic<bool> lost_ = false;
};

// Training rows per client and, of sequences, their tokens behind them.
absl::StatusOr<fleet::Blob> ExamplesBlob(const data::Dataset& dataset) {
  const uint64_t clients = dataset.info().clients;
  const bool tokens = dataset.info().train_tokens > 0;
  AlignedBuffer buffer((tokens ? 2 : 1) * clients * sizeof(uint32_t));
  const std::span<uint32_t> counts = buffer.As<uint32_t>();
  for (uint64_t client = 0; client < clients; ++client) {
    counts[client] = dataset.Examples(ClientId(client), data::Split::kTrain);
    if (!tokens || counts[client] == 0) continue;
    MACAW_ASSIGN_OR_RETURN(const data::Rows rows,
                           dataset.Client(ClientId(client), data::Split::kTrain));
    counts[clients + client] =
        static_cast<uint32_t>(std::min<uint64_t>(data::TokensOf(rows), UINT32_MAX));
  }
  return fleet::Blob::Of(std::move(buffer));
}

// Both sides run a plug-in's code: other bytes under one name would be two algorithms in one run.
absl::Status CheckPlugins(const std::vector<std::string>& wanted,
                          const std::vector<std::string>& loaded) {
  if (wanted == loaded) return absl::OkStatus();
  const auto text = [](const std::vector<std::string>& plugins) {
    return plugins.empty() ? std::string("none") : absl::StrJoin(plugins, ", ");
  };
  return absl::FailedPreconditionError(absl::StrCat(
      "the run has other plug-ins than this worker (name, version, digest): ", text(wanted),
      " against ", text(loaded), "; give this node's `plugins` the same files"));
}

// Of the trainer that the run will get here. A server that does not say what it runs, or whose run
// this worker cannot read, gets the eager trainer's and may refuse it.
NumericProfile ProfileFor(const std::optional<RunConfig>& run, const data::DatasetInfo& info) {
  if (!run.has_value()) return training::EagerProfile();
  const absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(run->model, run->dtype);
  if (!spec.ok()) return training::EagerProfile();
  return training::ProfileOf({.spec = *spec,
                              .task = run->task,
                              .local = run->local,
                              .transform = run->transform,
                              .feature_type = info.feature_type,
                              .dtype = run->dtype});
}

absl::StatusOr<RunContext> MakeRunContext(const fleet::RegisterReply& registration,
                                          const algorithms::Registry& registry) {
  RunContext context{.run = registration.run, .epoch = registration.epoch};
  MACAW_ASSIGN_OR_RETURN(context.spec, models::BuildSpec(context.run.model, context.run.dtype));
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* algorithm,
                         registry.Find(context.run.algorithm.name));
  const algorithms::Setup setup{.config = context.run.algorithm,
                                .layout = context.spec.layout,
                                .local = context.run.local,
                                .cohort = context.run.cohort,
                                .clients = context.run.clients,
                                .total_weight = TotalWeight(context.run),
                                .contribution_bound = context.run.contribution_bound};
  MACAW_ASSIGN_OR_RETURN(context.schema, algorithms::MakeSchema(*algorithm, setup));
  MACAW_ASSIGN_OR_RETURN(context.algorithm, algorithm->client(setup));
  return context;
}

// The keeper of this run's client states: made when first needed, and kept over sessions. Null when
// the algorithm keeps none.
class RunStates {
 public:
  explicit RunStates(const Options& options) : options_(options) {}

  absl::StatusOr<StateKeeper*> Of(const RunContext& context, const Digest& run) {
    if (context.schema.state.empty()) return nullptr;
    if (keeper_ != nullptr && run == run_) return keeper_.get();
    state::StateSchema schema;
    for (const algorithms::NamedLayout& item : context.schema.state) schema.push_back(item.layout);
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<state::ClientStateStore> store,
                           state::OpenStore(options_.state, std::move(schema), run));
    keeper_ = std::make_unique<StateKeeper>(std::move(store), options_.slots);
    run_ = run;
    return keeper_.get();
  }

 private:
  const Options& options_;
  std::unique_ptr<StateKeeper> keeper_;
  Digest run_;
};

}  // namespace

absl::Status Run(const Options& options, const data::Dataset& dataset, fleet::FleetLink& link,
                 const algorithms::Registry& registry, std::stop_token stop) {
  const Logger log("worker");
  MACAW_ASSIGN_OR_RETURN(RunningMarker marker,
                         RunningMarker::Open(options.scratch_dir, options.name, options.slots));
  std::random_device entropy;  // names this process; nothing of a result depends on it
  const data::DatasetInfo& info = dataset.info();
  MACAW_ASSIGN_OR_RETURN(fleet::Blob examples, ExamplesBlob(dataset));
  fleet::RegisterRequest request{.name = options.name,
                                 .incarnation = (uint64_t{entropy()} << 32) | entropy(),
                                 .slots = options.slots,
                                 .data_digest = info.digest,
                                 .input_shape = info.input_shape,
                                 .classes = info.classes,
                                 .clients = info.clients,
                                 .central_test_rows = info.test_examples,
                                 .died_running = marker.died_running(),
                                 .examples = std::move(examples),
                                 .volatile_state = options.state.ends_with_process()};
  const PatientCalls calls(options.reconnect_for, stop);
  uint64_t commits = 0;
  RunStates states(options);
  while (!stop.stop_requested()) {
    MACAW_ASSIGN_OR_RETURN(const fleet::HelloReply hello,
                           calls.Repeat([&] { return link.Hello({.program = "macaw-worker"}); }));
    request.profile = ProfileFor(hello.run, info);
    MACAW_ASSIGN_OR_RETURN(const fleet::RegisterReply registration,
                           calls.Repeat([&] { return link.Register(request); }));
    request.died_running.clear();
    MACAW_RETURN_IF_ERROR(CheckPlugins(registration.run.plugins, options.plugins));
    MACAW_ASSIGN_OR_RETURN(RunContext context, MakeRunContext(registration, registry));
    MACAW_ASSIGN_OR_RETURN(context.states, states.Of(context, registration.run_id));
    log.Info(absl::StrCat("registered session=", registration.session.value,
                          " epoch=", registration.epoch));
    Session session(options, dataset, link, marker, stop, context, registration, &commits);
    const absl::StatusOr<SessionEnd> end = session.Run();
    if (stop.stop_requested()) break;
    // Whatever ends a session that had begun may go better the next time: never the code of a
    // refusal, which callers take as final.
    if (!end.ok()) return absl::AbortedError(end.status().message());
    if (*end == SessionEnd::kRunOver) break;
    log.Info("session_lost registering_again");
  }
  return absl::OkStatus();
}

}  // namespace macaw::worker
