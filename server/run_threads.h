#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/executor.h"
#include "core/logging.h"
#include "server/event_loop.h"
#include "server/open_sessions.h"
#include "server/opening.h"
#include "server/run_writer.h"
#include "server/served_blobs.h"

namespace macaw::server {

// Three threads share the work, and each piece of state belongs to one of them:
//   engine  the round engine, tickets of open calls, the row whose evaluation is owed   (loop_)
//   sums    the algorithm's server half, the open sum, decoded parts                    (sums_)
//   writer  the run folder                                                              (writer_)
// RPC threads only post. Where a model is so small that handing it over costs more than adding it
// up, the engine's thread does the sums' work, too.
//
// run_threads.cc: the calls of the fleet and their answers. run_host.cc: what the engine wants
// done, and what follows from it.
class RunThreads final : private EngineHost {
 public:
  explicit RunThreads(Opening opening);
  ~RunThreads() override;

  // ---- RPC threads: whether the caller may has been found out before (coordinator.cc)

  // `table`: of the node's clients, or why it is refused.
  void Register(fleet::RegisterRequest request, absl::StatusOr<fleet::ClientTable> table,
                fleet::Reply<fleet::RegisterReply> reply);
  void Lease(fleet::LeaseRequest request, Duration wait, fleet::Reply<fleet::LeaseReply> reply);
  void Heartbeat(fleet::HeartbeatRequest request, fleet::Reply<fleet::HeartbeatReply> reply);
  void Commit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply);
  void Release(fleet::ReleaseRequest request, fleet::Reply<fleet::ReleaseReply> reply);
  void Offer(const fleet::UploadOffer& offer, fleet::Reply<fleet::UploadVerdict> reply);

  // ---- any thread

  absl::StatusOr<Outcome> Wait();
  void Interrupt();
  const Options& options() const { return options_; }
  OpenSessions& sessions() { return sessions_; }
  const OpenSessions& sessions() const { return sessions_; }
  ServedBlobs& blobs() { return blobs_; }

 private:
  // ---- EngineHost (engine thread)

  void Prepare(const PhaseOrder& order) override;
  void Add(Ticket commit) override;
  void Discard(Ticket commit) override { decoded_.erase(commit); }
  void AddAgain(const fleet::Part& part) override;
  void Apply(PhaseReport report) override;
  std::optional<std::string> Evaluated(const EvaluationSums& sums) override;
  std::optional<std::string> EvaluatedBefore(Round round) override;
  void AnswerLease(Ticket ticket, fleet::LeaseReply reply) override;
  void AnswerCommit(Ticket ticket, fleet::CommitReply reply) override;
  void SessionEnded(SessionId session) override { sessions_.Remove(session); }
  void Record(log::Record record) override;
  void Ended(RunEnd end, absl::Status status, std::string reason) override;

  // ---- between the threads

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
  void AnswerAfter(RunWriter::Safe safe, fleet::Reply<T> reply, Answer answer) {
    // Once the run is over nobody comes after, and who is told so need not wait for the disk.
    if (!durable_commits_ || ended_at_.has_value()) return std::move(reply)(std::move(answer));
    writer_.After(safe, [reply = std::move(reply), answer = std::move(answer)]() mutable {
      std::move(reply)(std::move(answer));
    });
  }

  // Engine thread:
  // The log says what was decided; the journal keeps what it was decided about, and first.
  void JournalWhatItIsAbout(const log::Record& record);
  void OnClosed(Closed closed);
  // A worker that calls again has given its former call up: work that went out there would be taken
  // from where it is being done.
  void AnswerNoOlderAsk(SessionId session);
  void WriteRow(std::function<std::string()> text);
  std::optional<std::string> ObserveForStop(Round round, const MetricsRow& row);
  Checkpoint CheckpointOf(Round round, StateVersions::Staged staged);
  // Zero while the run has not begun: then there is nothing to go on from.
  Digest DataDigest() const {
    return engine_.roster().begun() ? engine_.roster().data_digest() : Digest();
  }
  NumericProfile Profile() const { return engine_.profile().value_or(NumericProfile()); }
  void SayFarewell();  // asked again after every call and at the deadline
  TimePoint NextDeadline();
  bool farewell_due();  // everything is written, and somebody has not been told yet
  void OnDeadline() {
    if (!ended_at_.has_value()) engine_.Tick(SteadyClock().Now());
  }

  // Sums thread:
  absl::Status DecodeAndAdd(fleet::Part part);
  // Writer thread:
  void SetOutcome(absl::StatusOr<Outcome> outcome);

  // What the round waits for goes before the decoding of parts that have only just arrived.
  template <typename Work>
  void PostSums(Work work) {
    small_model_ ? loop_.Post(std::move(work)) : sums_.PostUrgent(std::move(work));
  }
  template <typename Work>
  void PostDecoding(Work work) {
    small_model_ ? loop_.Post(std::move(work)) : sums_.Post(std::move(work));
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
  EarlyStopping early_stopping_;
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

}  // namespace macaw::server
