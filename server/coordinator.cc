#include "server/coordinator.h"

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_split.h"
#include "core/executor.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/mutex.h"
#include "core/status.h"
#include "server/checkpoint.h"
#include "server/engine/round_engine.h"
#include "server/event_loop.h"
#include "server/metrics.h"
#include "server/model_keeper.h"
#include "server/run_folder.h"
#include "server/stop_watch.h"

namespace macaw::server {
namespace {

constexpr Duration kFarewell =
    std::chrono::seconds(3);  // workers may take this long to hear that it is over
constexpr Duration kMemorySample =
    std::chrono::seconds(1);        // a sample of the PSS costs about a millisecond
constexpr size_t kServedBlobs = 4;  // broadcasts and models a slow download may still want

// Three threads share the work, and each piece of state belongs to one of them:
//   engine  the round engine, tickets of open calls, the row whose evaluation is owed   (loop_)
//   sums    the algorithm's server half, the open sum, decoded parts                    (sums_)
//   writer  the run folder                                                              (writer_)
// RPC threads only post.
class CoordinatorImpl final : public Coordinator, private EngineHost {
 public:
  CoordinatorImpl(Options options, EngineOptions engine, ModelKeeper keeper, RunFolder folder,
                  std::optional<MetricsRow> owed_row, double seconds_before, StopWatch stop_watch)
      : options_(std::move(options)),
        seconds_before_(seconds_before),
        started_(SteadyClock().Now()),
        run_id_(engine.run_id),
        blobs_(engine.evaluate_first.has_value() ? std::deque<fleet::Blob>{*engine.evaluate_first}
                                                 : std::deque<fleet::Blob>{}),
        engine_(std::move(engine), scheduler_, *this),
        owed_row_(std::move(owed_row)),
        stop_watch_(std::move(stop_watch)),
        keeper_(std::move(keeper)),
        folder_(std::move(folder)),
        loop_([this] { return NextDeadline(); }, [this] { OnDeadline(); }) {}

  ~CoordinatorImpl() override {
    loop_.Post([this] { engine_.Interrupt(); });
    {
      MutexLock lock(&mutex_);
      const auto over = [this]()
                            ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
      mutex_.Await(over);
    }
    // The threads post to each other, at most engine → sums → engine once the run is over: let all
    // of it run before the first of them goes away.
    for (int pass = 0; pass < 3; ++pass) {
      sums_.WaitIdle();
      writer_.WaitIdle();
      loop_.WaitIdle();
    }
  }

  // ---- FleetHandler (RPC threads)
  // --------------------------------------------------------------------------------

  void Hello(fleet::HelloRequest request, fleet::Reply<fleet::HelloReply> reply) override {
    if (request.major != 1) {
      return std::move(reply)(absl::FailedPreconditionError(absl::StrCat(
          "this server speaks protocol 1, \"", request.program, "\" speaks ", request.major)));
    }
    std::move(reply)(fleet::HelloReply{.program = "macaw-server", .run = options_.run});
  }

  void Register(fleet::RegisterRequest request, fleet::Reply<fleet::RegisterReply> reply) override {
    std::vector<uint32_t> examples;
    if (const auto& bytes = request.examples.bytes; bytes != nullptr) {
      examples.resize(bytes->size() / sizeof(uint32_t));
      std::memcpy(examples.data(), bytes->bytes().data(), examples.size() * sizeof(uint32_t));
    }
    loop_.Post([this, request = std::move(request), examples = std::move(examples),
                reply = std::move(reply)]() mutable {
      // The first node says what the run is about; known before the engine may end the run over it.
      const bool first = !population_.named();
      if (first) {
        population_ = request.examples;
        profile_ = request.profile;
        data_digest_ = request.data_digest;
      }
      absl::StatusOr<fleet::RegisterReply> answer =
          engine_.Register(request, std::move(examples), SteadyClock().Now());
      if (first && !answer.ok()) {
        population_ = {};
        profile_ = {};
        data_digest_ = {};
      }
      if (answer.ok()) {
        if (first) {
          MutexLock lock(&blobs_mutex_);
          pinned_ = population_;
        }
        log_.Info(absl::StrCat("worker_joined name=", request.name, " slots=", request.slots));
      } else {
        log_.Warning(absl::StrCat("worker_refused ", answer.status().message()));
        Note({"worker_refused",
              {{"worker", request.name}, {"why", std::string(answer.status().message())}}});
      }
      std::move(reply)(std::move(answer));
    });
  }

  void Lease(fleet::LeaseRequest request, Duration wait,
             fleet::Reply<fleet::LeaseReply> reply) override {
    loop_.Post([this, request = std::move(request), wait, reply = std::move(reply)]() mutable {
      const Ticket ticket = ++last_ticket_;
      leases_.emplace(ticket, std::move(reply));
      engine_.Lease(ticket, request, wait, SteadyClock().Now());
    });
  }

  void Heartbeat(fleet::HeartbeatRequest request,
                 fleet::Reply<fleet::HeartbeatReply> reply) override {
    loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
      fleet::HeartbeatReply answer = engine_.Heartbeat(request, SteadyClock().Now());
      if (answer.known) {
        uint64_t& peak = worker_memory_[request.session];
        peak = std::max(peak, request.memory_bytes);
      }
      std::move(reply)(std::move(answer));
    });
  }

  void Commit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply) override {
    // Decoded and checked into a buffer of its own first; only then is it judged, and only then
    // added.
    sums_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
      absl::Status decoded;
      std::optional<aggregation::ExactSum> sum;
      if (request.part.has_value() && !request.part->included.empty()) {
        absl::StatusOr<aggregation::ExactSum> result = keeper_.Decode(*request.part);
        if (result.ok()) {
          sum = *std::move(result);
        } else {
          decoded = std::move(result).status();
        }
      }
      if (request.part.has_value()) request.part->sums.bytes.reset();
      loop_.Post([this, request = std::move(request), reply = std::move(reply),
                  decoded = std::move(decoded), sum = std::move(sum)]() mutable {
        const Ticket ticket = ++last_ticket_;
        commits_.emplace(ticket, std::move(reply));
        if (sum.has_value()) decoded_.emplace(ticket, *std::move(sum));
        engine_.Commit(ticket, request, decoded, SteadyClock().Now());
      });
    });
  }

  void Release(fleet::ReleaseRequest request, fleet::Reply<fleet::ReleaseReply> reply) override {
    loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
      engine_.Release(request, SteadyClock().Now());
      std::move(reply)(fleet::ReleaseReply{});
    });
  }

  void Offer(fleet::UploadOffer offer, fleet::Reply<fleet::UploadVerdict> reply) override {
    loop_.Post([this, offer, reply = std::move(reply)]() mutable {
      std::move(reply)(engine_.Offer(offer));
    });
  }

  std::shared_ptr<const AlignedBuffer> FindBlob(const Digest& digest) override {
    MutexLock lock(&blobs_mutex_);
    if (pinned_.digest == digest) return pinned_.bytes;
    for (const fleet::Blob& blob : blobs_) {
      if (blob.digest == digest) return blob.bytes;
    }
    return nullptr;
  }

  // ---- Coordinator
  // -----------------------------------------------------------------------------------------------

  absl::StatusOr<Outcome> Wait() override {
    MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return outcome_.has_value() && farewell_said_;
    };
    mutex_.Await(over);
    return *outcome_;
  }

  void Interrupt() override {
    loop_.Post([this] { engine_.Interrupt(); });
  }

 private:
  // ---- EngineHost (engine thread)
  // --------------------------------------------------------------------------------

  void Prepare(const PhaseOrder& order) override {
    if (!first_lease_at_.has_value()) first_lease_at_ = round_started_ = SteadyClock().Now();
    sums_.Post([this, order] {
      absl::StatusOr<fleet::Blob> blob = keeper_.Open(order);
      if (blob.ok()) Serve(*blob);
      loop_.Post([this, order, blob = std::move(blob)]() mutable {
        engine_.BroadcastReady(order.round, order.phase, std::move(blob), SteadyClock().Now());
      });
    });
  }

  void Add(Ticket commit) override {
    auto node = decoded_.extract(commit);
    sums_.Post([this, commit, sum = std::move(node.mapped())]() mutable {
      const absl::Status status = keeper_.Add(std::move(sum));
      loop_.Post(
          [this, commit, status] { engine_.PartAdded(commit, status, SteadyClock().Now()); });
    });
  }

  void Discard(Ticket commit) override { decoded_.erase(commit); }

  void Apply(PhaseReport report) override {
    sums_.Post([this, report = std::move(report)]() mutable {
      Closed closed{.another_phase = keeper_.Apply(report.round, report.phase)};
      if (closed.another_phase.ok() && !*closed.another_phase) {
        closed.row.emplace(options_.run.task, report, keeper_.headroom());
        if (EvaluationDue(options_.run, report.round)) {
          closed.model = keeper_.ModelBlob();
          Serve(*closed.model);
          if (options_.run.evaluation.train) {
            closed.row->AddPenalty(options_.run.local.weight_decay, keeper_.Model());
          }
        }
        const uint32_t every = options_.checkpoint_every;
        const bool last = report.round.value == options_.run.rounds;  // Ended keeps that one
        if (every > 0 && report.round.value % every == 0 && !last) closed.state = keeper_.Save();
      }
      closed.report = std::move(report);
      loop_.Post([this, closed = std::move(closed)]() mutable { OnClosed(std::move(closed)); });
    });
  }

  std::optional<std::string> Evaluated(const EvaluationSums& sums) override {
    owed_row_->AddEvaluation(sums);
    const MetricsRow row = *std::exchange(owed_row_, std::nullopt);
    WriteRow(row);
    if (!options_.stop.active()) return std::nullopt;
    const std::optional<double> value = row.Get(options_.stop.metric);
    if (!value.has_value()) return std::nullopt;
    return stop_watch_.Observe(sums.round.value, *value);
  }

  void AnswerLease(Ticket ticket, fleet::LeaseReply reply) override {
    auto node = leases_.extract(ticket);
    if (!node.empty()) std::move(node.mapped())(std::move(reply));
  }

  void AnswerCommit(Ticket ticket, fleet::CommitReply reply) override {
    auto node = commits_.extract(ticket);
    if (!node.empty()) std::move(node.mapped())(std::move(reply));
  }

  void Note(Event event) override {
    const double seconds = Elapsed();
    Write(
        [this, event = std::move(event), seconds] { return folder_.AppendEvent(event, seconds); });
  }

  void Ended(RunEnd end, absl::Status status, std::string reason) override {
    ended_at_ = SteadyClock().Now();
    log_.Info(absl::StrCat("run_over rounds=", engine_.completed(), status.ok() ? "" : " failed"));
    static constexpr const char* kNames[] = {"finished", "stopped", "interrupted", "failed"};
    Note({std::string("run_") + kNames[static_cast<int>(end)],
          {{"rounds", int64_t{engine_.completed()}},
           {"why", status.ok() ? reason : std::string(status.message())}}});
    SummaryFacts facts{
        .name = options_.run.name,
        .end = kNames[static_cast<int>(end)],
        .reason = reason,
        .seconds = Elapsed(),
        .session_seconds = ToSeconds(*ended_at_ - first_lease_at_.value_or(*ended_at_)),
        .session_rounds = engine_.completed() - first_round_,
        .stop_metric = options_.stop.metric,
        .profile = profile_};
    for (const auto& [session, bytes] : worker_memory_) facts.worker_memory.push_back(bytes);
    facts.state_digest = engine_.state_digest();
    Checkpoint checkpoint = CheckpointOf(Round(engine_.completed()), /*closing=*/false);
    if (owed_row_.has_value()) checkpoint.owed_row = owed_row_->Text();
    sums_.Post([this, end, mid_round = engine_.mid_round(), status = std::move(status),
                facts = std::move(facts), checkpoint = std::move(checkpoint)]() mutable {
      checkpoint.state = keeper_.Save();
      const LayoutPtr layout = keeper_.Layouts().front();
      auto model = std::make_shared<FlatVector>(FlatVector::CopyOf(keeper_.Model(), layout));
      facts.model_digest = DigestOfValues(model->view());
      facts.parameters = layout->count();
      writer_.Post([this, end, mid_round, status = std::move(status), facts = std::move(facts),
                    checkpoint = std::move(checkpoint), model]() mutable {
        Finish(end, mid_round, std::move(status), std::move(facts), std::move(checkpoint), *model);
      });
    });
  }

  // ---- between the threads
  // ---------------------------------------------------------------------------------------

  struct Closed {
    absl::StatusOr<bool> another_phase;
    PhaseReport report;
    std::optional<MetricsRow> row;
    std::optional<fleet::Blob> model;              // to evaluate
    std::optional<algorithms::ServerState> state;  // to keep
  };

  void OnClosed(Closed closed) {  // engine thread
    const PhaseReport& report = closed.report;
    if (closed.row.has_value()) {
      const TimePoint now = SteadyClock().Now();
      Note({"round",
            {{"round", int64_t{report.round.value}},
             {"clients", static_cast<int64_t>(report.records.size())},
             {"left_out", static_cast<int64_t>(report.left_out.size())},
             {"requeued", static_cast<int64_t>(report.requeued)},
             {"seconds", ToSeconds(now - round_started_)}}});
      round_started_ = now;
      for (const fleet::LeftOut& left : report.left_out) {
        Note({"left_out",
              {{"round", int64_t{report.round.value}},
               {"client", static_cast<int64_t>(left.attempt.client.value)},
               {"why", left.message}}});
      }
      if (options_.client_records) {
        Write([this, round = report.round, records = report.records] {
          return folder_.AppendClients(round, records, options_.run.task);
        });
      }
      const bool owed = closed.model.has_value();
      Checkpoint checkpoint;
      if (closed.state.has_value()) {
        checkpoint = CheckpointOf(report.round, /*closing=*/true);
        checkpoint.state = *std::move(closed.state);
        if (owed) checkpoint.owed_row = closed.row->Text();
      }
      if (owed) {
        owed_row_ = *std::move(closed.row);
      } else {
        WriteRow(*closed.row);
      }
      if (checkpoint.round.value > 0) {
        Write([this, checkpoint = std::move(checkpoint)]() mutable {
          const absl::StatusOr<Round> oldest = folder_.Keep(std::move(checkpoint));
          if (oldest.ok()) loop_.Post([this, oldest] { engine_.CheckpointsFrom(*oldest); });
          return oldest.status();
        });
      }
    }
    engine_.Applied(std::move(closed.another_phase), std::move(closed.model), SteadyClock().Now());
  }

  void WriteRow(const MetricsRow& row) {  // engine thread
    const std::string text = row.Text();
    if (options_.on_row) options_.on_row(text);
    Write([this, text] {
      SampleMemory();
      return folder_.AppendRow(text);
    });
  }

  Checkpoint CheckpointOf(Round round, bool closing) {  // engine thread
    return {.round = round,
            .fingerprint = Describe(options_.run),
            .data_digest = data_digest_,
            .profile = profile_,
            .seconds = Elapsed(),
            .run_id = run_id_,
            .versions = engine_.SnapshotVersions(closing)};
  }

  void Finish(RunEnd end, bool mid_round, absl::Status status, SummaryFacts facts,
              Checkpoint checkpoint,
              const FlatVector& model) {  // writer thread
    const uint32_t rounds = checkpoint.round.value;
    if (status.ok()) status = write_error_;
    const bool keep = !checkpoint.data_digest.IsZero() && !mid_round;
    const bool interrupted = end == RunEnd::kInterrupted;
    if (status.ok() && keep && interrupted) status = folder_.Keep(std::move(checkpoint)).status();
    if (status.ok()) {
      SampleMemory();
      facts.server_memory = memory_peak_;
      status = folder_.WriteFinal(model.view(), facts);
    }
    // Last, so that a run whose checkpoint says that it is over has all its results; an interrupted
    // one is kept first, since its results can be made again. A run that failed keeps the
    // checkpoint it had, so that a resume repeats what led to the failure.
    if (status.ok() && keep && !interrupted) status = folder_.Keep(std::move(checkpoint)).status();
    MutexLock lock(&mutex_);
    if (!status.ok()) {
      outcome_ = status;
    } else {
      const auto kind = end == RunEnd::kFinished  ? Outcome::Kind::kFinished
                        : end == RunEnd::kStopped ? Outcome::Kind::kStopped
                                                  : Outcome::Kind::kInterrupted;
      outcome_ = Outcome{.kind = kind, .rounds = rounds, .reason = facts.reason};
    }
    loop_.Post([this] { SayFarewell(); });
  }

  void SayFarewell() {  // engine thread; asked again after every call and at the deadline
    if (!ended_at_.has_value()) return;
    MutexLock lock(&mutex_);
    if (!outcome_.has_value()) return;
    farewell_said_ =
        farewell_said_ || engine_.everybody_told() || SteadyClock().Now() >= *ended_at_ + kFarewell;
  }

  TimePoint NextDeadline() {  // engine thread
    SayFarewell();
    if (ended_at_.has_value()) return farewell_due() ? *ended_at_ + kFarewell : TimePoint::max();
    return engine_.NextDeadline();
  }
  bool farewell_due() {  // everything is written, and somebody has not been told yet
    MutexLock lock(&mutex_);
    return outcome_.has_value() && !farewell_said_;
  }
  void OnDeadline() {
    if (!ended_at_.has_value()) engine_.Tick(SteadyClock().Now());
  }

  void Serve(const fleet::Blob& blob) {
    MutexLock lock(&blobs_mutex_);
    for (const fleet::Blob& known : blobs_) {
      if (known.digest == blob.digest) return;
    }
    blobs_.push_back(blob);
    if (blobs_.size() > kServedBlobs) blobs_.pop_front();
  }

  // Posts work to the writer thread. The first failed write ends the run, and nothing is written
  // after it: a later checkpoint would count on rows that are not there.
  template <typename Work>
  void Write(Work work) {
    writer_.Post([this, work = std::move(work)]() mutable {
      if (!write_error_.ok()) return;
      write_error_ = work();
      if (write_error_.ok()) return;
      loop_.Post([this, status = write_error_] { engine_.Abort(status); });
    });
  }

  void SampleMemory() {  // writer thread
    const TimePoint now = SteadyClock().Now();
    if (memory_peak_ > 0 && now - memory_sampled_ < kMemorySample) return;
    memory_sampled_ = now;
    if (const auto bytes = ProportionalSetSize(); bytes.ok())
      memory_peak_ = std::max(memory_peak_, *bytes);
  }

  double Elapsed() const { return seconds_before_ + ToSeconds(SteadyClock().Now() - started_); }

  const Options options_;
  const Logger log_{"server"};
  const double seconds_before_;
  const TimePoint started_;
  const Digest run_id_;

  Mutex mutex_;
  std::optional<absl::StatusOr<Outcome>> outcome_ ABSL_GUARDED_BY(mutex_);
  bool farewell_said_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex blobs_mutex_;
  std::deque<fleet::Blob> blobs_ ABSL_GUARDED_BY(blobs_mutex_);  // recent broadcasts and models
  fleet::Blob pinned_ ABSL_GUARDED_BY(blobs_mutex_);             // the population

  // engine thread
  const scheduler::LongestFirstScheduler scheduler_;
  RoundEngine engine_;
  std::optional<MetricsRow> owed_row_;
  StopWatch stop_watch_;
  Ticket last_ticket_ = 0;
  absl::flat_hash_map<Ticket, fleet::Reply<fleet::LeaseReply>> leases_;
  absl::flat_hash_map<Ticket, fleet::Reply<fleet::CommitReply>> commits_;
  std::map<Ticket, aggregation::ExactSum> decoded_;
  std::map<WorkerId, uint64_t> worker_memory_;
  fleet::Blob population_;
  NumericProfile profile_;
  Digest data_digest_;
  TimePoint round_started_;
  const uint32_t first_round_ = engine_.completed();
  std::optional<TimePoint> first_lease_at_;
  std::optional<TimePoint> ended_at_;

  // sums thread
  ModelKeeper keeper_;

  // writer thread
  RunFolder folder_;
  absl::Status write_error_;
  uint64_t memory_peak_ = 0;
  TimePoint memory_sampled_{};

  Executor writer_{"writer", 1};
  Executor sums_{"sums", 1};
  EventLoop loop_;
};

// The rows that a resumed run keeps, for the stop rule's memory. Refuses a run that the rule has
// stopped already: one more round would give another result than stopping did.
absl::Status Replay(const Options& options, const Checkpoint& checkpoint, StopWatch& stop_watch) {
  if (!options.stop.active()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.run_dir + "/metrics.jsonl"));
  std::optional<std::string> over;  // what the last row said
  for (const absl::string_view line :
       absl::StrSplit(text.substr(0, checkpoint.metrics_bytes), '\n', absl::SkipEmpty())) {
    const auto row = MetricsRow::Parse(options.run.task, std::string(line));
    if (!row.has_value())
      return absl::DataLossError(absl::StrCat(options.run_dir, "/metrics.jsonl is damaged"));
    if (const auto value = row->Get(options.stop.metric); value.has_value()) {
      over = stop_watch.Observe(static_cast<uint32_t>(*row->Get("round")), *value);
    }
  }
  if (over.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("the run in ", options.run_dir,
                                                      " has stopped: ", *over,
                                                      "; change run.stop to carry it on"));
  }
  return absl::OkStatus();
}

// The client states that a resumed run goes on with.
absl::StatusOr<VersionIndex> VersionsAfter(const Options& options, const Checkpoint& checkpoint) {
  VersionIndex versions = checkpoint.versions;
  for (const ClientId client : options.reset_states) {
    if (versions.Get(client).counter == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--state-reset ", client.value, ": the checkpoint after round ",
                       checkpoint.round.value, " has no state of that client"));
    }
    versions.Clear(client);
  }
  return versions;
}

// Tells this run from all others; nothing of a result depends on it.
Digest NewRunId() {
  std::random_device entropy;
  Digest id;
  for (uint8_t& byte : id.bytes) byte = static_cast<uint8_t>(entropy());
  return id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Options options, FlatVector initial, const algorithms::Registry& registry) {
  MACAW_RETURN_IF_ERROR(CheckStopRule(options.stop, options.run));
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* algorithm,
                         registry.Find(options.run.algorithm.name));
  MACAW_ASSIGN_OR_RETURN(options.run.algorithm, registry.Complete(options.run.algorithm));
  algorithms::Setup setup{.config = options.run.algorithm,
                          .layout = initial.layout(),
                          .local = options.run.local,
                          .cohort = options.run.cohort,
                          .clients = options.run.clients,
                          .total_weight = TotalWeight(options.run),
                          .contribution_bound = options.run.contribution_bound};
  MACAW_ASSIGN_OR_RETURN(ModelKeeper keeper,
                         ModelKeeper::Make(*algorithm, std::move(setup), std::move(initial)));

  EngineOptions engine{.run = options.run,
                       .lease_timeout = options.lease_timeout,
                       .max_deaths = options.max_deaths,
                       .workers = options.workers,
                       .evaluation_gates = options.stop.active(),
                       .stateful = keeper.stateful()};
  StopWatch stop_watch(options.stop);
  std::optional<MetricsRow> owed_row;
  std::optional<Checkpoint> checkpoint;
  if (options.resume) {
    MACAW_ASSIGN_OR_RETURN(
        checkpoint, ReadNewestCheckpoint(options.run_dir, Describe(options.run), keeper.Layouts()));
    if (checkpoint->round.value >= options.run.rounds && checkpoint->owed_row.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("the run in ", options.run_dir,
                                                        " has done its ", checkpoint->round.value,
                                                        " rounds; ask for more with --rounds"));
    }
    MACAW_RETURN_IF_ERROR(keeper.Load(checkpoint->state));
    MACAW_RETURN_IF_ERROR(Replay(options, *checkpoint, stop_watch));
    engine.completed = checkpoint->round.value;
    engine.data_digest = checkpoint->data_digest;
    engine.profile = checkpoint->profile;
    engine.run_id = checkpoint->run_id;
    MACAW_ASSIGN_OR_RETURN(engine.versions, VersionsAfter(options, *checkpoint));
    if (!checkpoint->owed_row.empty()) {
      owed_row = MetricsRow::Parse(options.run.task, checkpoint->owed_row);
      engine.evaluate_first = keeper.ModelBlob();
    }
  } else if (HasCheckpoint(options.run_dir)) {
    // The former run's rounds may be higher, and would then pass for this one's newest.
    return absl::AlreadyExistsError(
        absl::StrCat(options.run_dir,
                     "/checkpoints holds those of another run: resume that one, "
                     "or give this one a folder of its own"));
  }
  MACAW_ASSIGN_OR_RETURN(
      RunFolder folder,
      RunFolder::Open(options.run_dir, checkpoint.has_value() ? &*checkpoint : nullptr,
                      options.client_records));
  engine.epoch = folder.epoch();
  if (engine.run_id.IsZero()) engine.run_id = NewRunId();
  const double seconds_before = checkpoint.has_value() ? checkpoint->seconds : 0;
  return std::make_unique<CoordinatorImpl>(std::move(options), std::move(engine), std::move(keeper),
                                           std::move(folder), std::move(owed_row), seconds_before,
                                           std::move(stop_watch));
}

}  // namespace macaw::server
