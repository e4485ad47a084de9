#include "server/coordinator.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/status.h"
#include "server/access.h"
#include "server/event_loop.h"
#include "server/open_sessions.h"
#include "server/opening.h"
#include "server/run_writer.h"
#include "server/served_blobs.h"

namespace macaw::server {
namespace {

constexpr uint64_t kRefusalsTold = 1000;  // in log and events; who asks for ever fills no disk
constexpr Duration kFarewell =
    std::chrono::seconds(3);  // workers may take this long to hear that it is over

// Three threads share the work, and each piece of state belongs to one of them:
//   engine  the round engine, tickets of open calls, the row whose evaluation is owed   (loop_)
//   sums    the algorithm's server half, the open sum, decoded parts                    (sums_)
//   writer  the run folder                                                              (writer_)
// RPC threads only post. Where a model is so small that handing it over costs more than adding it
// up, the engine's thread does the sums' work, too.
constexpr uint64_t kSmallModel = 1 << 14;  // numbers; a few times 10 µs to decode or to apply

class CoordinatorImpl final : public Coordinator, private EngineHost {
 public:
  explicit CoordinatorImpl(Opening opening)
      : options_(std::move(opening.options)),
        seconds_before_(opening.seconds_before),
        started_(SteadyClock().Now()),
        run_id_(opening.engine.run_id),
        blobs_(opening.engine.evaluate_first),
        sessions_(options_.lease_timeout),
        durable_commits_(options_.commit_durability),
        past_sums_(std::move(opening.sums)),
        past_rows_(std::move(opening.rows)),
        restored_(SessionsOf(opening.engine.restored)),
        scheduler_(std::move(opening.scheduler)),
        engine_(std::move(opening.engine), *scheduler_, *this),
        owed_row_(std::move(opening.owed_row)),
        stop_watch_(std::move(opening.stop_watch)),
        keeper_(std::move(opening.keeper)),
        small_model_(keeper_.Layouts().front()->size() <= kSmallModel),
        writer_(std::move(opening.folder),
                [this](const absl::Status& status) {
                  loop_.Post([this, status] { engine_.Abort(status); });
                }),
        loop_([this] { return NextDeadline(); }, [this] { OnDeadline(); },
              [this] { writer_.Flush(); }) {
    // Before anybody can call: whoever had a session still has it.
    for (const JournalNode& node : restored_) {
      sessions_.Add(node.session, node.request.name);
      if (!node.request.owner) blobs_.Pin(node.request.table);
    }
    loop_.Post([this] {
      for (const JournalNode& node : restored_) {
        worker_memory_[node.session] = 0;
        writer_.Worker(node.node, node.request.name, node.request.slots);
      }
      restored_.clear();
      engine_.Resume(SteadyClock().Now());
    });
  }

  ~CoordinatorImpl() override {
    loop_.Post([this] { engine_.Interrupt(); });
    {
      absl::MutexLock lock(&mutex_);
      const auto over = [this]()
                            ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
      mutex_.Await(absl::Condition(&over));
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

  void Hello(const fleet::Caller& caller, fleet::HelloRequest request,
             fleet::Reply<fleet::HelloReply> reply) override {
    if (const absl::Status status = CheckAccess(caller, Call::kHello, Whose::kNobodys);
        !status.ok()) {
      return std::move(reply)(status);
    }
    if (request.major != 1) {
      return std::move(reply)(absl::FailedPreconditionError(absl::StrCat(
          "this server speaks protocol 1, \"", request.program, "\" speaks ", request.major)));
    }
    std::move(reply)(fleet::HelloReply{.program = "macaw-server", .run = options_.run});
  }

  void Register(const fleet::Caller& caller, fleet::RegisterRequest request,
                fleet::Reply<fleet::RegisterReply> reply) override {
    const Whose whose =
        caller.node.empty() || caller.node == request.name ? Whose::kOwn : Whose::kAnothers;
    absl::StatusOr<fleet::ClientTable> table =
        fleet::ClientTable::Decode(BytesOf(request.table), request.clients);
    absl::Status status = CheckAccess(caller, Call::kRegister, whose);
    if (status.ok()) status = table.status();
    if (status.ok()) status = CheckOwns(caller, request, *table);
    loop_.Post([this, request = std::move(request), table = std::move(table),
                status = std::move(status), reply = std::move(reply)]() mutable {
      registering_ = &request;
      absl::StatusOr<fleet::RegisterReply> answer =
          status.ok() ? engine_.Register(request, *std::move(table), SteadyClock().Now())
                      : absl::StatusOr<fleet::RegisterReply>(status);
      if (answer.ok()) {
        if (!request.owner) blobs_.Pin(request.table);
        sessions_.Add(answer->session, request.name);
        // Known already where its first answer was lost.
        if (worker_memory_.try_emplace(answer->session, 0).second)
          writer_.Worker(engine_.nodes().Find(answer->session)->id, request.name, request.slots);
        log_.Info(absl::StrCat("worker_joined name=", request.name, " slots=", request.slots));
        if (!engine_.roster().begun()) {
          log_.Info(absl::StrCat("waiting workers=", engine_.nodes().size(), "/", options_.workers,
                                 " clients=", engine_.roster().clients(), "/",
                                 options_.run.clients));
        }
      } else if (++refused_ <= kRefusalsTold) {
        const char* last = refused_ == kRefusalsTold ? " (the last refusal that is told)" : "";
        log_.Warning(absl::StrCat("worker_refused ", answer.status().message(), last));
        Record(log::NodeRefused{.name = request.name,
                                .why = absl::StrCat(answer.status().message(), last)});
      }
      registering_ = nullptr;
      AnswerAfter(RunWriter::Safe::kFromThisProcess, std::move(reply), std::move(answer));
    });
  }

  void Lease(const fleet::Caller& caller, fleet::LeaseRequest request, Duration wait,
             fleet::Reply<fleet::LeaseReply> reply) override {
    if (Denied(caller, Call::kLease, request.session, reply)) return;
    loop_.Post([this, request = std::move(request), wait, reply = std::move(reply)]() mutable {
      AnswerNoOlderAsk(request.session);
      const Ticket ticket = ++last_ticket_;
      leases_.emplace(ticket, OpenLease{.reply = std::move(reply)});
      engine_.Lease(ticket, request, wait, SteadyClock().Now());
    });
  }

  void Heartbeat(const fleet::Caller& caller, fleet::HeartbeatRequest request,
                 fleet::Reply<fleet::HeartbeatReply> reply) override {
    if (Denied(caller, Call::kHeartbeat, request.session, reply)) return;
    switch (sessions_.Hear(request.session, SteadyClock().Now())) {
      case OpenSessions::Beat::kUnknown:
        return std::move(reply)(fleet::HeartbeatReply{.known = false});
      case OpenSessions::Beat::kTooSoon:
        return std::move(reply)(fleet::HeartbeatReply{});
      case OpenSessions::Beat::kDue:
        break;
    }
    loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
      fleet::HeartbeatReply answer = engine_.Heartbeat(request, SteadyClock().Now());
      if (answer.known) {
        uint64_t& peak = worker_memory_[request.session];
        peak = std::max(peak, request.memory_bytes);
      }
      std::move(reply)(std::move(answer));
    });
  }

  void Commit(const fleet::Caller& caller, fleet::CommitRequest request,
              fleet::Reply<fleet::CommitReply> reply) override {
    if (Denied(caller, Call::kCommit, request.session, reply)) return;
    // Decoded and checked into a buffer of its own first; only then is it judged, and only then
    // added.
    PostDecoding([this, request = std::move(request), reply = std::move(reply)]() mutable {
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
      if (request.part.has_value() && !durable_commits_) request.part->sums.bytes.reset();
      loop_.Post([this, request = std::move(request), reply = std::move(reply),
                  decoded = std::move(decoded), sum = std::move(sum)]() mutable {
        if (!engine_.caught_up()) return std::move(reply)(NotYet());
        const Ticket ticket = ++last_ticket_;
        AnswerNoOlderAsk(request.session);
        if (request.ask.has_value()) request.ask->session = request.session;
        commits_.emplace(ticket, OpenCommit{.session = request.session,
                                            .reply = std::move(reply),
                                            .ask = std::move(request.ask),
                                            .wait = request.ask_wait});
        if (sum.has_value()) decoded_.emplace(ticket, *std::move(sum));
        committing_ = &request;
        engine_.Commit(ticket, request, decoded, SteadyClock().Now());
        committing_ = nullptr;
      });
    });
  }

  void Release(const fleet::Caller& caller, fleet::ReleaseRequest request,
               fleet::Reply<fleet::ReleaseReply> reply) override {
    if (Denied(caller, Call::kRelease, request.session, reply)) return;
    loop_.Post([this, request = std::move(request), reply = std::move(reply)]() mutable {
      engine_.Release(request, SteadyClock().Now());
      std::move(reply)(fleet::ReleaseReply{});
    });
  }

  void Offer(const fleet::Caller& caller, fleet::UploadOffer offer,
             fleet::Reply<fleet::UploadVerdict> reply) override {
    if (Denied(caller, Call::kOffer, offer.session, reply)) return;
    loop_.Post([this, offer, reply = std::move(reply)]() mutable {
      if (!engine_.caught_up()) return std::move(reply)(NotYet());
      fleet::UploadVerdict verdict = engine_.Offer(offer);
      const bool sums = offer.purpose == fleet::BlobPurpose::kSums;
      if (verdict == fleet::UploadVerdict::kSend && sums && offer.size > most_sums_bytes_)
        verdict = fleet::UploadVerdict::kTooLarge;
      std::move(reply)(verdict);
    });
  }

  bool Knows(SessionId session) const override { return sessions_.Knows(session); }

  std::shared_ptr<const AlignedBuffer> FindBlob(const fleet::Caller& caller,
                                                const Digest& digest) override {
    const bool allowed = CheckAccess(caller, Call::kDownload, Whose::kNobodys).ok();
    return allowed ? blobs_.Find(digest) : nullptr;
  }

  // ---- Coordinator

  absl::StatusOr<Outcome> Wait() override {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return outcome_.has_value() && farewell_said_;
    };
    mutex_.Await(absl::Condition(&over));
    return *outcome_;
  }

  void Interrupt() override {
    loop_.Post([this] { engine_.Interrupt(); });
  }

 private:
  // ---- EngineHost (engine thread)

  void Prepare(const PhaseOrder& order) override {
    if (!first_lease_at_.has_value()) first_lease_at_ = round_started_ = SteadyClock().Now();
    PostSums([this, order] {
      absl::StatusOr<fleet::Blob> blob = keeper_.Open(order);
      if (blob.ok()) blobs_.Serve(*blob);
      const uint64_t most_sums_bytes = keeper_.MostSumsBytes().value_or(0);
      loop_.Post([this, order, most_sums_bytes, blob = std::move(blob)]() mutable {
        most_sums_bytes_ = most_sums_bytes;
        engine_.BroadcastReady(order.round, order.phase, std::move(blob), SteadyClock().Now());
      });
    });
  }

  void Add(Ticket commit) override {
    auto node = decoded_.extract(commit);
    PostSums([this, commit, sum = std::move(node.mapped())]() mutable {
      const absl::Status status = keeper_.Add(std::move(sum));
      loop_.Post(
          [this, commit, status] { engine_.PartAdded(commit, status, SteadyClock().Now()); });
    });
  }

  void Discard(Ticket commit) override { decoded_.erase(commit); }

  void AddAgain(const fleet::Part& part) override {
    PostSums([this, part]() mutable {
      const absl::Status status = DecodeAndAdd(std::move(part));
      loop_.Post([this, status] { engine_.PartAdded(0, status, SteadyClock().Now()); });
    });
  }

  void Apply(PhaseReport report) override {
    PostSums([this, report = std::make_shared<const PhaseReport>(std::move(report))] {
      Closed closed{.another_phase = keeper_.Apply(report->round, report->phase),
                    .report = report,
                    .headroom = keeper_.headroom(),
                    .rule = keeper_.metrics()};
      if (closed.round_done()) {
        if (EvaluationDue(options_.run, report->round)) {
          closed.model = keeper_.ModelBlob();
          blobs_.Serve(*closed.model);
          closed.row = MetricsRow(options_.run.task, *report, closed.headroom, closed.rule);
          if (options_.run.evaluation.train) {
            closed.row->AddPenalty(options_.run.local.weight_decay, keeper_.Model());
          }
        }
        const uint32_t every = options_.checkpoint_every;
        const bool last = report->round.value == options_.run.rounds;  // Ended keeps that one
        if (every > 0 && report->round.value % every == 0 && !last) closed.state = keeper_.Save();
      }
      loop_.Post([this, closed = std::move(closed)]() mutable { OnClosed(std::move(closed)); });
    });
  }

  std::optional<std::string> Evaluated(const EvaluationSums& sums) override {
    owed_row_->AddEvaluation(sums);
    const MetricsRow row = *std::exchange(owed_row_, std::nullopt);
    WriteRow([row] { return row.Text(); });
    const std::optional<std::string> stop = ObserveForStop(sums.round, row);
    if (!sums.given_up.empty()) {
      log_.Warning(absl::StrCat(
          "evaluation_without round=", sums.round.value, " clients=", sums.given_up.size(),
          " first=", sums.given_up.front().value, ": their states could not be read"));
    }
    Record(log::Evaluated{.round = sums.round, .stop = stop.value_or("")});
    return stop;
  }

  std::optional<std::string> EvaluatedBefore(Round round) override {
    owed_row_.reset();
    const std::string text = past_rows_.at(round);
    WriteRow([text] { return text; });
    const std::optional<MetricsRow> row = MetricsRow::Parse(options_.run.task, text);
    return row.has_value() ? ObserveForStop(round, *row) : std::nullopt;
  }

  void AnswerLease(Ticket ticket, fleet::LeaseReply reply) override {
    auto node = leases_.extract(ticket);
    if (!node.empty())
      AnswerAfter(node.mapped().safe, std::move(node.mapped().reply), std::move(reply));
  }

  void AnswerCommit(Ticket ticket, fleet::CommitReply reply) override {
    auto node = commits_.extract(ticket);
    if (node.empty()) return;
    OpenCommit& commit = node.mapped();
    const bool goes_on =
        reply.verdict != fleet::Verdict::kRefused && reply.verdict != fleet::Verdict::kRegister;
    if (!commit.ask.has_value() || !goes_on) {
      return AnswerAfter(RunWriter::Safe::kFromTheMachine, std::move(commit.reply),
                         std::move(reply));
    }
    // The engine is in the middle of a call; what is posted runs behind it.
    loop_.Post([this, commit = std::move(commit), reply = std::move(reply)]() mutable {
      const Ticket lease = ++last_ticket_;
      leases_.emplace(lease,
                      OpenLease{.reply =
                                    [answer = std::move(commit.reply), reply = std::move(reply)](
                                        absl::StatusOr<fleet::LeaseReply> leased) mutable {
                                      if (leased.ok()) reply.lease = *std::move(leased);
                                      std::move(answer)(std::move(reply));
                                    },
                                .safe = RunWriter::Safe::kFromTheMachine});
      engine_.Lease(lease, *commit.ask, commit.wait, SteadyClock().Now());
    });
  }

  void SessionEnded(SessionId session) override { sessions_.Remove(session); }

  void Record(log::Record record) override {
    if (durable_commits_) JournalWhatItIsAbout(record);
    writer_.Record(std::move(record), SteadyClock().Now() - started_, Elapsed());
  }

  void Ended(RunEnd end, absl::Status status, std::string reason) override {
    ended_at_ = SteadyClock().Now();
    log_.Info(absl::StrCat("run_over rounds=", engine_.completed(), status.ok() ? "" : " failed"));
    static constexpr const char* kNames[] = {"finished", "stopped", "interrupted", "failed"};
    log::RunEnded over{.how = static_cast<log::End>(end),
                       .rounds = engine_.completed(),
                       .why = status.ok() ? reason : std::string(status.message()),
                       .states = engine_.state_digest().value_or(Digest())};
    SummaryFacts facts{
        .name = options_.run.name,
        .algorithm = options_.run.algorithm.name,
        .settings = options_.settings,
        .seed = options_.run.seed,
        .data_digest = DataDigest(),
        .end = kNames[static_cast<int>(end)],
        .reason = reason,
        .seconds = Elapsed(),
        .session_seconds = ToSeconds(*ended_at_ - first_lease_at_.value_or(*ended_at_)),
        .session_rounds = engine_.completed() - first_round_,
        .stop_metric = options_.stop.metric,
        .profile = Profile()};
    for (const auto& [session, bytes] : worker_memory_) facts.worker_memory.push_back(bytes);
    facts.state_digest = engine_.state_digest();
    Checkpoint checkpoint = CheckpointOf(Round(engine_.completed()), /*closing=*/false);
    if (owed_row_.has_value()) checkpoint.owed_row = owed_row_->Text();
    // An interrupted run is kept first: its results can be made again. Any other is kept last, so
    // that a run whose checkpoint says that it is over has all its results. One that failed keeps
    // the checkpoint it had, so that a resume repeats what led to the failure.
    RunWriter::Ending ending{
        .status = std::move(status),
        .has_checkpoint = !checkpoint.data_digest.IsZero() && !engine_.mid_round(),
        .checkpoint_first = end == RunEnd::kInterrupted,
        .checkpoint = std::move(checkpoint),
        .facts = std::move(facts)};
    PostSums([this, end, whole = !engine_.mid_round(), over = std::move(over),
              ending = std::move(ending)]() mutable {
      ending.checkpoint.state = keeper_.Save();
      const LayoutPtr layout = keeper_.Layouts().front();
      ending.model = FlatVector::CopyOf(keeper_.Model(), layout);
      ending.facts.model_digest = DigestOfValues(ending.model.view());
      ending.facts.parameters = layout->count();
      if (whole) over.model = ending.facts.model_digest;
      Record(std::move(over));
      Outcome outcome{.kind = KindOf(end),
                      .rounds = ending.checkpoint.round.value,
                      .reason = ending.facts.reason};
      writer_.Finish(std::move(ending), [this, outcome = std::move(outcome)](
                                            absl::Status written) mutable {
        SetOutcome(written.ok() ? absl::StatusOr<Outcome>(std::move(outcome)) : std::move(written));
      });
    });
  }

  // ---- between the threads

  static std::span<const std::byte> BytesOf(const fleet::Blob& blob) {
    return blob.bytes != nullptr ? blob.bytes->bytes() : std::span<const std::byte>();
  }

  // A node that owns clients may bring those that it was entered with.
  static absl::Status CheckOwns(const fleet::Caller& caller, const fleet::RegisterRequest& request,
                                const fleet::ClientTable& table) {
    if (!request.owner || caller.owns.empty()) return absl::OkStatus();
    for (uint64_t place = 0; place < table.clients(); ++place) {
      const std::string name = table.NameOf(place);
      if (std::ranges::find(caller.owns, name) != caller.owns.end()) continue;
      return absl::PermissionDeniedError(absl::StrCat(
          "worker \"", request.name, "\" does not own a client named \"", name, "\" in this run"));
    }
    return absl::OkStatus();
  }

  // To a call about a round that this server has not come back to yet: the caller tries again.
  static absl::Status NotYet() {
    return absl::UnavailableError("the server is doing again what the one before it had done");
  }

  // Answers a call that the caller may not make in this session (RPC threads).
  template <typename T>
  bool Denied(const fleet::Caller& caller, Call call, SessionId session, fleet::Reply<T>& reply) {
    const std::optional<std::string> owner = sessions_.OwnerOf(session);
    const bool own = caller.node.empty() || caller.node == owner;
    absl::Status status = CheckAccess(caller, call,
                                      !owner.has_value() ? Whose::kNobodys
                                      : own              ? Whose::kOwn
                                                         : Whose::kAnothers);
    if (status.ok()) return false;
    std::move(reply)(std::move(status));
    return true;
  }

  struct OpenLease {
    fleet::Reply<fleet::LeaseReply> reply;
    // What a crash must not undo once this is answered: the commit, where one asked for the work.
    RunWriter::Safe safe = RunWriter::Safe::kFromThisProcess;
  };
  struct OpenCommit {
    SessionId session;
    fleet::Reply<fleet::CommitReply> reply;
    std::optional<fleet::LeaseRequest> ask;  // once the commit is judged
    Duration wait{};
  };

  struct Closed {
    absl::StatusOr<bool> another_phase;
    std::shared_ptr<const PhaseReport> report;
    ModelKeeper::Numbers headroom, rule;
    std::optional<MetricsRow> row = std::nullopt;  // of a round whose evaluation is still to come
    std::optional<fleet::Blob> model = std::nullopt;              // to evaluate
    std::optional<algorithms::ServerState> state = std::nullopt;  // to keep

    bool round_done() const { return another_phase.ok() && !*another_phase; }
  };

  // With durable commits what is answered has been written before: a server that comes after this
  // one knows the session, the lease, the commit that somebody has been told of.
  template <typename T, typename Answer>
  void AnswerAfter(RunWriter::Safe safe, fleet::Reply<T> reply, Answer answer) {  // engine thread
    // Once the run is over nobody comes after, and who is told so need not wait for the disk.
    if (!durable_commits_ || ended_at_.has_value()) return std::move(reply)(std::move(answer));
    writer_.After(safe, [reply = std::move(reply), answer = std::move(answer)]() mutable {
      std::move(reply)(std::move(answer));
    });
  }

  // The log says what was decided; the journal keeps what it was decided about, and first.
  void JournalWhatItIsAbout(const log::Record& record) {  // engine thread
    if (const auto* joined = std::get_if<log::NodeJoined>(&record)) {
      writer_.Node({.node = joined->node,
                    .session = engine_.nodes().At(joined->node).session,
                    .request = *registering_});
    } else if (const auto* accepted = std::get_if<log::Accepted>(&record)) {
      fleet::Part part = *committing_->part;
      std::erase_if(part.left_out, [&](const fleet::LeftOut& left) {
        return std::ranges::none_of(accepted->given_up, [&](const log::GivenUp& given_up) {
          return given_up.attempt == left.attempt;
        });
      });
      writer_.Part({.node = accepted->node,
                    .node_name = engine_.nodes().At(accepted->node).name,
                    .commit = accepted->commit,
                    .part = std::move(part)});
    }
  }

  absl::Status DecodeAndAdd(fleet::Part part) {  // sums thread
    const auto place = past_sums_.find(part.sums.digest);
    if (place == past_sums_.end()) {
      return absl::DataLossError(
          absl::StrCat("the journal lacks sums of round ", part.round.value));
    }
    MACAW_ASSIGN_OR_RETURN(part.sums, ReadBlob(place->second, part.sums.digest));
    MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum sum, keeper_.Decode(part));
    return keeper_.Add(std::move(sum));
  }

  std::optional<std::string> ObserveForStop(Round round, const MetricsRow& row) {
    if (!options_.stop.active()) return std::nullopt;
    const auto value = row.Get(options_.stop.metric);
    return value.has_value() ? stop_watch_.Observe(round.value, *value) : std::nullopt;
  }

  static std::vector<JournalNode> SessionsOf(const Restored& restored) {
    std::vector<JournalNode> sessions;
    for (const Restored::Member& member : restored.members) {
      if (member.there)
        sessions.push_back(
            {.node = member.node, .session = member.session, .request = member.request});
    }
    return sessions;
  }

  void OnClosed(Closed closed) {  // engine thread
    const PhaseReport& report = *closed.report;
    const TimePoint now = SteadyClock().Now();
    writer_.Phase(closed.report, started_, now);
    if (closed.another_phase.ok() && !engine_.redoing()) {
      // Before the checkpoint: the log tells of every round that a checkpoint holds.
      Record(log::Closed{.round = report.round,
                         .phase = report.phase,
                         .last = closed.round_done(),
                         .counted = report.records.size(),
                         .left_out = report.left_out.size(),
                         .requeued = report.requeued,
                         .seconds = closed.round_done() ? ToSeconds(now - round_started_) : 0,
                         .model = closed.model.has_value() ? closed.model->digest : Digest()});
    }
    if (closed.round_done()) {
      round_started_ = now;
      if (options_.client_records) {
        writer_.Clients(report.round, report.records, options_.run.task);
      }
      Checkpoint checkpoint;
      if (closed.state.has_value()) {
        checkpoint = CheckpointOf(report.round, /*closing=*/true);
        checkpoint.state = *std::move(closed.state);
        if (closed.row.has_value()) checkpoint.owed_row = closed.row->Text();
      }
      if (closed.row.has_value()) {
        owed_row_ = *std::move(closed.row);
      } else {
        // Its statistics are for the writer's thread: the next round need not wait for them.
        WriteRow([task = options_.run.task, report = closed.report, headroom = closed.headroom,
                  rule = closed.rule] { return MetricsRow(task, *report, headroom, rule).Text(); });
      }
      if (checkpoint.round.value > 0) {
        writer_.Keep(std::move(checkpoint), [this](Round oldest) {
          loop_.Post([this, oldest] { engine_.CheckpointsFrom(oldest); });
        });
      }
    }
    engine_.Applied(std::move(closed.another_phase), std::move(closed.model), SteadyClock().Now());
  }

  // A worker that calls again has given its former call up: work that went out there would be taken
  // from where it is being done.
  void AnswerNoOlderAsk(SessionId session) {  // engine thread
    for (auto& [ticket, commit] : commits_) {
      if (commit.session == session) commit.ask.reset();
    }
  }

  // What the round waits for goes before the decoding of parts that have only just arrived.
  template <typename Work>
  void PostSums(Work work) {
    small_model_ ? loop_.Post(std::move(work)) : sums_.PostUrgent(std::move(work));
  }
  template <typename Work>
  void PostDecoding(Work work) {
    small_model_ ? loop_.Post(std::move(work)) : sums_.Post(std::move(work));
  }

  void WriteRow(std::function<std::string()> text) {  // engine thread
    writer_.Row([this, text = std::move(text)] {
      std::string row = text();
      if (options_.on_row) options_.on_row(row);
      return row;
    });
  }

  Checkpoint CheckpointOf(Round round, bool closing) {  // engine thread
    return {.round = round,
            .fingerprint = Fingerprint(options_.run),
            .data_digest = DataDigest(),
            .profile = Profile(),
            .seconds = Elapsed(),
            .run_id = run_id_,
            .versions = engine_.SnapshotVersions(closing)};
  }

  // Zero while the run has not begun: then there is nothing to go on from.
  Digest DataDigest() const {
    return engine_.roster().begun() ? engine_.roster().data_digest() : Digest();
  }
  NumericProfile Profile() const { return engine_.profile().value_or(NumericProfile()); }

  static Outcome::Kind KindOf(RunEnd end) {
    return end == RunEnd::kFinished  ? Outcome::Kind::kFinished
           : end == RunEnd::kStopped ? Outcome::Kind::kStopped
                                     : Outcome::Kind::kInterrupted;
  }

  void SetOutcome(absl::StatusOr<Outcome> outcome) {  // writer thread
    absl::MutexLock lock(&mutex_);
    outcome_ = std::move(outcome);
    loop_.Post([this] { SayFarewell(); });
  }

  void SayFarewell() {  // engine thread; asked again after every call and at the deadline
    if (!ended_at_.has_value()) return;
    absl::MutexLock lock(&mutex_);
    if (!outcome_.has_value()) return;
    farewell_said_ = farewell_said_ || engine_.nodes().everybody_told() ||
                     SteadyClock().Now() >= *ended_at_ + kFarewell;
  }

  TimePoint NextDeadline() {  // engine thread
    SayFarewell();
    if (ended_at_.has_value()) return farewell_due() ? *ended_at_ + kFarewell : TimePoint::max();
    return engine_.NextDeadline();
  }
  bool farewell_due() {  // everything is written, and somebody has not been told yet
    absl::MutexLock lock(&mutex_);
    return outcome_.has_value() && !farewell_said_;
  }
  void OnDeadline() {
    if (!ended_at_.has_value()) engine_.Tick(SteadyClock().Now());
  }

  double Elapsed() const { return seconds_before_ + ToSeconds(SteadyClock().Now() - started_); }

  const Options options_;
  const Logger log_{"server"};
  const double seconds_before_;
  const TimePoint started_;
  const Digest run_id_;

  absl::Mutex mutex_;
  std::optional<absl::StatusOr<Outcome>> outcome_ ABSL_GUARDED_BY(mutex_);
  bool farewell_said_ ABSL_GUARDED_BY(mutex_) = false;

  ServedBlobs blobs_;  // broadcasts, models to evaluate, the population
  OpenSessions sessions_;

  const bool durable_commits_;
  // Of the server before this one, where the run goes on inside a round.
  const absl::flat_hash_map<Digest, JournalPlace> past_sums_;
  const std::map<Round, std::string> past_rows_;
  std::vector<JournalNode> restored_;

  // engine thread
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  RoundEngine engine_;
  std::optional<MetricsRow> owed_row_;
  StopWatch stop_watch_;
  Ticket last_ticket_ = 0;
  const fleet::RegisterRequest* registering_ = nullptr;  // while the engine looks at it
  const fleet::CommitRequest* committing_ = nullptr;
  absl::flat_hash_map<Ticket, OpenLease> leases_;
  absl::flat_hash_map<Ticket, OpenCommit> commits_;
  std::map<Ticket, aggregation::ExactSum> decoded_;
  uint64_t refused_ = 0;                         // registrations
  uint64_t most_sums_bytes_ = 0;                 // of a part of the open phase
  std::map<SessionId, uint64_t> worker_memory_;  // the most of each, in bytes
  TimePoint round_started_;
  const uint32_t first_round_ = engine_.completed();
  std::optional<TimePoint> first_lease_at_;
  std::optional<TimePoint> ended_at_;

  // sums thread
  ModelKeeper keeper_;
  const bool small_model_;

  RunWriter writer_;
  Executor sums_{"sums", 1};
  EventLoop loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Options options, FlatVector initial, const algorithms::Registry& registry) {
  MACAW_ASSIGN_OR_RETURN(Opening opening, Open(std::move(options), std::move(initial), registry));
  return std::make_unique<CoordinatorImpl>(std::move(opening));
}

}  // namespace macaw::server
