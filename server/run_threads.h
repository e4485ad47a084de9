#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "core/executor.h"
#include "core/logging.h"
#include "server/event_loop.h"
#include "server/left_out_lines.h"
#include "server/open_sessions.h"
#include "server/opening.h"
#include "server/run_writer.h"
#include "server/served_blobs.h"

namespace macaw::server {

// Three threads share the work, and each piece of state belongs to one of them:
//   engine  the round engine, tickets of open calls, the row whose evaluation is owed   (loop_)
//   sums    the algorithm's server half, the open sum, decoded parts                    (sums_)
//   writer  the run folder                                                              (writer_)
// RPC threads only post. For a model so small that the hand-over costs more than the addition, the
// engine's thread also does the work of the sums thread.
//
// run_threads.cc: the calls of the fleet and their answers. run_effects.cc: carries out the effects
// of the engine's events, and gives the results back to the engine. run_ending.cc: the end of the
// run. run_operators.cc: the calls of operators.
class RunThreads final : public admin::AdminHandler {
 public:
  explicit RunThreads(Opening opening);
  ~RunThreads() override;

  // ---- RPC threads; coordinator.cc has already checked that the caller may make the call

  // `table`: the decoded table of the node's clients, or why the node is refused.
  void Register(fleet::RegisterRequest request, absl::StatusOr<fleet::ClientTable> table,
                fleet::Reply<fleet::RegisterReply> reply);
  void Lease(fleet::LeaseRequest request, fleet::Reply<fleet::LeaseReply> reply);
  void Heartbeat(fleet::HeartbeatRequest request, fleet::Reply<fleet::HeartbeatReply> reply);
  void Commit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply);
  void Release(fleet::ReleaseRequest request, fleet::Reply<fleet::ReleaseReply> reply);
  void Offer(const fleet::UploadOffer& offer, fleet::Reply<fleet::UploadVerdict> reply);
  void NoteWaited(const std::string& node, Duration time);  // for its turn to download

  // ---- operators, on any thread (run_operators.cc)

  void Status(fleet::Reply<admin::RunStatus> reply) override;
  void Apply(admin::Change change, fleet::Reply<admin::Changed> reply) override;
  admin::EventFeed& events() override { return events_; }

  // ---- any thread

  // With which every node trains; "": each with its best, or not decided yet.
  std::string InstructionSet() const;
  absl::StatusOr<Outcome> Wait();
  void Interrupt();
  void Suspend();
  void GoOnTo(Round round);
  void StopHere(std::string reason);
  void AskEngine(absl::AnyInvocable<void() &&> then) { loop_.Post(std::move(then)); }
  const Options& options() const { return options_; }
  OpenSessions& sessions() { return sessions_; }
  const OpenSessions& sessions() const { return sessions_; }
  ServedBlobs& blobs() { return blobs_; }

 private:
  // ---- effects of the engine's events (engine thread; run_effects.cc)

  // Carries the effects out, in the order that engine/effects.h demands. Every event of the engine
  // goes through it.
  void Carry(Effects effects);

  void Write(Recorded recorded);
  void WriteJournal(JournalData data);
  void WriteRecord(log::Record record);             // to the run's log; any thread
  void LogRecord(const log::Record& record) const;  // to the server's own log, if it tells a wait

  void Send(Ticket ticket, fleet::LeaseReply reply);
  void Send(Ticket ticket, fleet::CommitReply reply);

  void Begin(PrepareBroadcast order);
  void Begin(AddPart order);
  void Begin(DiscardPart order) { decoded_.erase(order.commit); }
  void Begin(AddPartAgain order);
  void Begin(ApplySum order);
  void Begin(JudgeEvaluation order);
  void Begin(EndSession order) {
    sessions_.Remove(order.session);
    asks_.erase(order.session);
  }
  void Begin(EndRun order);

  // ---- between the threads

  struct OpenLease {
    fleet::Reply<fleet::LeaseReply> reply;
    // How safe earlier writes must be before the answer. A lease that was asked for with a commit
    // also acknowledges that commit, so it waits for the disk.
    RunWriter::Safe safe = RunWriter::Safe::kFromThisProcess;
  };
  struct OpenCommit {
    SessionId session;
    fleet::Reply<fleet::CommitReply> reply;
    std::optional<fleet::LeaseRequest> ask;  // passed to the engine after the commit is answered
  };

  struct DecodedPart {
    aggregation::ExactSum sum;
    ClientId first;  // of its clients
  };

  // An evaluation that is judged, for the engine.
  struct Judged {
    Round round{};
    std::optional<std::string> stop;
  };
  struct Closed {
    absl::StatusOr<bool> another_phase;
    std::shared_ptr<const PhaseReport> report;
    ModelKeeper::Numbers headroom, rule;
    std::optional<MetricsRow> row =
        std::nullopt;  // of a round whose evaluation is not complete yet
    std::optional<fleet::Blob> model = std::nullopt;  // to evaluate
    std::optional<fleet::Blob> alone = std::nullopt;  // of several the first
    // Models without a client: to evaluate beside it, and the round's line about them so far.
    std::vector<ModelWithout> without = {};
    std::string contributions = {};
    std::optional<algorithms::ServerState> state = std::nullopt;  // to keep
    std::optional<fleet::Blob> shown = std::nullopt;              // the model, of a stepwise run

    bool round_done() const { return another_phase.ok() && !*another_phase; }
  };

  // With durable commits, everything that an answer tells is written before the answer is sent. So
  // the next server knows every session, lease and commit that a worker knows. If it could not be
  // written, the run ends, and the caller is told to ask the next server.
  template <typename T, typename Answer>
  void AnswerAfter(RunWriter::Safe safe, fleet::Reply<T> reply, Answer answer) {
    // After a run that did not fail there is no next server, so nothing need be on the disk.
    const bool last_server = ended_at_.has_value() && ended_how_ != "failed";
    if (suspended_) return std::move(reply)(Suspended());
    if (!durable_commits_ || last_server) return std::move(reply)(std::move(answer));
    writer_.After(safe, [reply = std::move(reply),
                         answer = std::move(answer)](const absl::Status& written) mutable {
      if (!written.ok()) return std::move(reply)(NotWritten());
      std::move(reply)(std::move(answer));
    });
  }

  // Answers an operator once the change is on the disk, with or without durable commits, so that
  // the next server knows what the operator was told. Errors, and answers of a run that has ended,
  // are given at once.
  void AnswerOperator(const absl::StatusOr<std::string>& said, fleet::Reply<admin::Changed> reply);

  static absl::Status NotWritten();
  static absl::Status Suspended();
  // While rounds that an earlier server had closed are done again, an interruption stops the server
  // alone: to end the run would drop those that are not done yet.
  void InterruptNow();
  void SuspendNow();
  // From now on calls get Suspended for an answer, the open ones at once.
  void StopAnswering();
  // Called when the folder cannot be written. With durable commits the server stops as by a crash:
  // no node hears that the run is over, and the next server goes on inside the round.
  void StopUnwritten(const absl::Status& why);

  // Engine thread:
  // The first node that registers decides, unless the configuration has.
  void NoteInstructionSet();
  // Says once that the sums of a round are too coarse for what clients send.
  void WarnOfCoarseSums(const Closed& closed);
  void LogLeftOut(const fleet::HeartbeatRequest& request, LeftOutLines& lines) const;
  // The row of the round's evaluation, now complete, and whether the run stops after it.
  std::optional<std::string> FinishRow(const EvaluationSums& sums);
  std::optional<std::string> RepeatRow(Round round);  // an earlier server has finished it
  // A line of contributions.jsonl, if the evaluation that is done owed one.
  void FinishContributions(const EvaluationSums& sums);
  void RepeatContributions(Round round);
  void OnClosed(Closed closed);
  // Cancels the requests for work that came with older commits of this session. A worker that calls
  // again no longer waits for its former call, so a lease in that answer would be lost.
  void DropOlderAsks(SessionId session);
  void WriteRow(std::function<std::string()> text);
  KeptModel Kept(fleet::Blob model) const;  // of this run, for a file
  std::optional<std::string> ObserveForStop(Round round, const MetricsRow& row);
  Checkpoint CheckpointOf(Round round, StateVersions::Staged staged);
  // Zero before the run has begun; then there is nothing to keep.
  Digest DataDigest() const {
    return engine_.roster().begun() ? engine_.roster().data_digest() : Digest();
  }
  // Reports the outcome to Wait when all workers know that the run is over, or have had the time
  // to learn it. Called again after every call and at the deadline.
  void ReportOutcome();
  TimePoint NextDeadline();
  bool report_due();  // everything is written, and Wait has not been told yet
  void OnDeadline() {
    if (!ended_at_.has_value()) Carry(engine_.Tick(SteadyClock().Now()));
  }

  // Sums thread:
  // Serves the models without a client, and says what is known of them.
  void ServeWithout(Closed& closed);
  absl::Status DecodeAndAdd(fleet::Part part);
  // Writer thread:
  void SetOutcome(absl::StatusOr<Outcome> outcome);

  // Commit, from where its part is decoded, and on the engine's thread from where it is judged.
  void DecodeCommit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply);
  void TakeCommit(fleet::CommitRequest request, fleet::Reply<fleet::CommitReply> reply,
                  const absl::Status& decoded, std::optional<DecodedPart> part);

  // PostSums: work for which the round waits. It runs before the decoding of newly arrived parts.
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
  const bool sums_states_;  // Opening::sums_states

  mutable absl::Mutex mutex_;
  std::optional<absl::StatusOr<Outcome>> outcome_ ABSL_GUARDED_BY(mutex_);
  bool reported_ ABSL_GUARDED_BY(mutex_) = false;  // the outcome, to Wait
  std::string instruction_set_ ABSL_GUARDED_BY(mutex_);

  ServedBlobs blobs_;  // broadcasts, models to evaluate, the population
  OpenSessions sessions_;
  admin::EventFeed events_;
  admin::LatestRow latest_row_;

  const bool durable_commits_;
  // From the previous server, if the run continues inside a round.
  const absl::flat_hash_map<Digest, JournalPlace> past_sums_;
  const std::map<Round, std::string> past_rows_, past_contributions_;

  // engine thread
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::optional<fleet::Blob> observed_model_;  // of the owed row, if there is a stop rule
  RoundEngine engine_;
  std::optional<MetricsRow> owed_row_;
  std::string owed_contributions_;  // of the owed row; empty: none
  EarlyStopping early_stopping_;
  Ticket last_ticket_ = 0;
  // Checkpoints that the writer has not written yet.
  static constexpr int kMostCheckpointsWaiting = 8;
  int checkpoints_waiting_ = 0;
  std::optional<Judged> judged_;  // the engine has not been told yet
  absl::flat_hash_map<Ticket, OpenLease> leases_;
  absl::flat_hash_map<Ticket, OpenCommit> commits_;
  absl::flat_hash_map<SessionId, Ticket> asks_;  // the open commit of each session that has `ask`
  std::map<Ticket, DecodedPart> decoded_;
  // Refused registrations that were told, by node and reason: a node asks again and again.
  absl::flat_hash_set<std::pair<std::string, std::string>> refusals_;
  LargestSums most_sums_;  // of a part in the open phase
  // What a session's heartbeats have reported, in bytes: the most, of each.
  struct NodeUse {
    uint64_t memory = 0, sent = 0, received = 0;
    LeftOutLines left_out = {};
  };
  std::map<SessionId, NodeUse> node_use_;
  uint64_t nodes_lost_ = 0, parts_turned_down_ = 0;
  TimePoint round_started_;
  const uint32_t first_round_ = engine_.completed();
  bool has_rows_ = false;  // of this session
  bool told_of_coarse_sums_ = false;
  std::optional<TimePoint> first_lease_at_;
  bool suspended_ = false;  // no effect is carried out any more, and the outcome follows
  std::optional<TimePoint> ended_at_;
  std::string ended_how_, ended_why_;
  // The newest changes of operators and their answers, for repeats.
  std::deque<std::pair<std::string, absl::StatusOr<std::string>>> changes_;

  // sums thread
  ModelKeeper keeper_;
  const size_t models_;                            // of the rule
  const LayoutPtr layout_;                         // of the model; any thread
  const std::shared_ptr<const SplitModel> split_;  // of it, or null; any thread
  const bool small_model_;
  const bool collects_;                     // large vectors, client by client
  const std::vector<std::string> bounded_;  // whose sums may be coarse; any thread

  RunWriter writer_;
  Executor sums_{"sums", 1};
  EventLoop loop_;
};

}  // namespace macaw::server
