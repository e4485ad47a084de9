#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/run_config.h"
#include "proto/fleet/messages.h"
#include "scheduler/cohort.h"
#include "scheduler/dispatch.h"
#include "scheduler/estimator.h"
#include "scheduler/plan.h"
#include "server/engine/attempt_table.h"
#include "server/engine/evaluation_board.h"
#include "server/engine/host.h"
#include "server/engine/roster.h"
#include "server/engine/version_index.h"
#include "server/log/history.h"

namespace macaw::server {

struct EngineOptions {
  RunConfig run;
  uint32_t epoch = 1;
  Duration lease_timeout = FromSeconds(30);
  uint32_t max_deaths = 3;  // of one client's running attempts with their worker, in one round
  // Rounds in a row in which every client was left out, until the run ends (all of a shorter run):
  // one such round moves on, but a run that trains nothing should not go on to its end.
  uint32_t max_lost_rounds = 5;
  uint32_t workers = 1;           // that must have registered before the first round
  bool evaluation_gates = false;  // the next round waits for the evaluation (a stop rule is set)
  uint32_t completed = 0;         // rounds already done (a resumed run)
  std::optional<Digest> data_digest;      // of a resumed run: only nodes with the same data and
  std::optional<NumericProfile> profile;  // profile may carry it on
  std::optional<fleet::Blob>
      evaluate_first;  // the model after `completed`, if its evaluation is still owed
  Digest run_id;
  log::Decisions given_up;  // of a run that repeats another one: these are not trained
  bool stateful = false;    // clients keep a state between rounds
  VersionIndex versions;    // of a resumed run
  // Makes the numbers of sessions; never 0, never twice. Default: 1, 2, 3, …, for tests. A server
  // gives random ones.
  std::function<uint64_t()> session_numbers;
};

// The last round is always evaluated.
bool EvaluationDue(const RunConfig& run, Round round);

// The rounds of a run as a state machine: events in (calls of workers, finished work, time),
// requests to the host out. It knows who is leased what and when a round may close; it never sees a
// vector, a file, a socket or a clock. All methods on one thread.
//
//   gathering → preparing → running → closing → preparing (next phase or round) → … → draining →
//   ended
//
// Rule of acceptance: attempt_table.h. A round closes when every client is counted or given up,
// every accepted part has been added, and the evaluation of the round before is complete.
class RoundEngine {
 public:
  // `host` and `scheduler` must outlive the engine.
  RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler, EngineHost& host);

  // ---- calls of workers ----
  // `table` is what request.table names. An error is the reason for the refusal.
  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request,
                                                fleet::ClientTable table, TimePoint now);
  void Lease(Ticket ticket, const fleet::LeaseRequest& request, Duration wait, TimePoint now);
  fleet::HeartbeatReply Heartbeat(const fleet::HeartbeatRequest& request, TimePoint now);
  // `decoded` is what became of the part's sums: OK and held by the host under `ticket`, or why
  // not.
  void Commit(Ticket ticket, const fleet::CommitRequest& request, const absl::Status& decoded,
              TimePoint now);
  void Release(const fleet::ReleaseRequest& request, TimePoint now);
  fleet::UploadVerdict Offer(const fleet::UploadOffer& offer) const;

  // ---- work the host has finished ----
  void BroadcastReady(Round round, Phase phase, absl::StatusOr<fleet::Blob> broadcast,
                      TimePoint now);
  void PartAdded(Ticket ticket, const absl::Status& status, TimePoint now);
  // `model`: the blob to evaluate, when this was the round's last phase and its evaluation is due.
  void Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model, TimePoint now);

  // ---- time and people ----
  void Tick(TimePoint now);
  TimePoint NextDeadline() const;  // when Tick has something to do next
  void Interrupt();
  void Abort(absl::Status why);  // something outside the engine failed; the run ends as failed

  // The worker that speaks in this session, while it is known.
  std::optional<WorkerId> WorkerOf(SessionId session) const;
  const Roster& roster() const { return roster_; }
  // Of the first node that registered, which all others must have; nothing while nobody has.
  const std::optional<NumericProfile>& profile() const { return profile_; }
  Round open_round() const { return order_.round; }
  uint32_t completed() const { return completed_; }
  // Whether a phase of the open round has moved the algorithm already: its state is not one to
  // keep.
  bool mid_round() const { return order_.phase.value > 0 && completed_ < order_.round.value; }
  bool everybody_told() const;  // after the end: every known worker has been told

  // ---- client states ----
  // What a checkpoint of the last whole round must hold; `closing`: the open one is whole, and
  // Applied is about to say so.
  VersionIndex SnapshotVersions(bool closing) { return versions_.Snapshot(closing); }
  // Older checkpoints than that of this round are gone for good.
  void CheckpointsFrom(Round oldest) { versions_.CheckpointsFrom(oldest); }
  // Over all client states (proto/fleet/state_digest.h), once a stateful run has come to its end.
  const std::optional<Digest>& state_digest() const { return state_digest_; }

 private:
  enum class State : uint8_t { kGathering, kPreparing, kRunning, kClosing, kDraining, kEnded };
  struct Parked {
    Ticket ticket = 0;
    TimePoint deadline{};
    fleet::LeaseRequest request;
  };
  struct Worker {
    WorkerId id;
    SessionId session;
    std::string name;
    uint64_t incarnation = 0;
    uint32_t slots = 1;
    TimePoint last_seen{};
    uint64_t last_commit = 0;
    std::optional<Parked> parked;
    TimePoint look_again = TimePoint::max();  // while parked: may get now what it did not before
    std::string device;                       // those with equal names are equally fast
    bool told = false;                        // that the run is over
    bool volatile_state = false;
    HoldingId holding;
    bool central_test = false;  // it has the central test set
  };
  // A holding in the open phase: what is not handed out of its clients, for whom. Every client is
  // in one pool and every worker has one, so that an owner's clients cannot go to anybody else.
  struct Pool {
    scheduler::DispatchQueue dispatch;
    std::set<WorkerId> workers;
    uint64_t slots = 0;             // of these workers
    std::deque<Attempt> deletable;  // state versions that lie with these workers
  };

  // What is known of the workers' speed in the open phase. Placement only, never a result.
  scheduler::Estimator& Estimates();
  void LearnSpeed(const Worker& worker, const fleet::Part& part);
  void NoteTurns(const Worker& worker, const fleet::Part& part);
  void Weigh(scheduler::CohortEntry& entry, Round round) const;  // what its cost depends on
  absl::Status CheckNode(const fleet::RegisterRequest& request,
                         const fleet::ClientTable& table) const;
  Worker* Seen(SessionId session, TimePoint now);
  void Lose(WorkerId id, const std::string& why, TimePoint now);
  SessionId NewSession() const;  // for worker `last_worker_`
  // Deaths that `worker` reports of its former process, of leases that it was given.
  void CountDeaths(const std::string& worker, const std::vector<Attempt>& died);
  void Begin(TimePoint now);
  void OpenRound(Round round, TimePoint now);
  void OpenPhase(Phase phase, TimePoint now);
  void RecordOpened();
  void GiveUpAsDecided();
  void OpenEvaluation(Round round, fleet::Blob model);
  bool Serve(Worker& worker, const fleet::LeaseRequest& request, Ticket ticket, TimePoint now);
  void ServeParked(TimePoint now);
  void ServeParked(Worker& worker, TimePoint now);
  void ServeAfterCommit(const Worker& committed, TimePoint now);
  // Those of the pool for whom nothing can come any more commit what they have.
  void DismissParked(const Pool& pool);
  Pool& PoolOf(const Worker& worker) { return pools_[worker.holding.value]; }
  Pool& PoolOf(ClientId client) { return pools_[roster_.HoldingOf(client).value]; }
  void PlanPools();
  // What the worker gets of the evaluation, of its queue of the central test set or its holding.
  void TakeEvaluation(const Worker& worker, EvaluationBoard::Queue queue, uint64_t slots,
                      TimePoint expires, std::vector<fleet::EvaluationTask>& tasks);
  std::vector<Attempt> TakeDeletable(Pool& pool);
  void Requeue(const std::vector<Attempt>& ended, const std::string& why);
  fleet::CommitReply Accept(Ticket ticket, Worker& worker, uint64_t commit_id,
                            const fleet::Part& part, const absl::Status& decoded, bool& adding);
  absl::Status CheckRecords(const fleet::Part& part) const;
  absl::Status CheckWork(const fleet::ClientRecord& record,
                         const scheduler::CohortEntry& entry) const;
  absl::Status CheckEvaluation(WorkerId worker, const fleet::EvaluationResult& result) const;
  absl::Status CheckStateStore(const fleet::RegisterRequest& request) const;
  // Ends the run when these say that the state of a client cannot be read.
  bool FailOverState(const std::vector<fleet::LeftOut>& left_out);
  bool FailOverState(WorkerId worker, const std::vector<fleet::EvaluationResult>& evaluations);
  // Tells the scheduler which of the cohort's clients have a state, and which worker made it.
  void ReportStates();
  // The run has done its rounds: ends it, in a stateful run once all states have been digested.
  void Finish(RunEnd end, std::string reason, TimePoint now);
  void Advance(
      TimePoint now);  // closes the round, finishes the evaluation, ends the run: whatever is due
  // Notes a phase whose every client was left out. False: it was one too many, and the run has
  // ended.
  bool MoveOnWithoutClients();
  void AfterEvaluation(TimePoint now);
  void NextRound(TimePoint now);
  void End(RunEnd end, absl::Status status, std::string reason);
  void Fail(absl::Status status) { End(RunEnd::kFailed, std::move(status), ""); }
  bool more_to_lease(const Pool& pool) const {
    return state_ == State::kRunning && !pool.dispatch.empty();
  }
  const scheduler::CohortEntry* FindEntry(ClientId client) const;
  double WeightOf(ClientId client) const;

  const EngineOptions options_;
  const scheduler::Scheduler& scheduler_;
  EngineHost& host_;
  FenceSource fences_;

  State state_ = State::kGathering;
  uint32_t completed_ = 0;
  bool interrupt_ = false;

  Roster roster_;
  std::optional<NumericProfile> profile_;
  std::vector<Pool> pools_;     // by holding
  uint64_t central_slots_ = 0;  // of the workers that have the central test set
  std::unique_ptr<scheduler::CohortSampler> sampler_;
  Digest eligible_;  // of the clients that it draws from, and their rows

  std::map<WorkerId, Worker> workers_;
  std::set<std::pair<std::string, uint64_t>> replaced_;  // (name, incarnation) of former processes
  absl::flat_hash_map<SessionId, WorkerId> sessions_;
  uint32_t last_worker_ = 0;

  // The open round.
  PhaseOrder order_;
  scheduler::Cohort cohort_;
  fleet::Blob broadcast_;
  AttemptTable table_{{}};
  absl::flat_hash_map<ClientId, TimePoint> leased_at_;  // when each was leased last
  std::map<Phase, scheduler::Estimator> estimators_;
  std::map<ClientId, uint32_t> deaths_;
  // Leases of the open round that ended with their worker, by its name: a death that its successor
  // reports is counted if it is among them, once.
  std::map<Fence, std::string> lost_leases_;
  PhaseReport report_;
  std::vector<fleet::LeftOut> left_out_before_;  // by its earlier phases
  uint64_t adding_ = 0;
  bool round_lost_ = false;   // a phase of it lost every client
  uint32_t lost_rounds_ = 0;  // in a row, before the open one

  EvaluationBoard evaluation_;
  bool evaluation_open_ = false;
  FenceSource evaluation_fences_;  // of its own, so that those of attempts are dense

  StateVersions versions_;
  // How the run ends once its client states have been digested.
  std::optional<std::pair<RunEnd, std::string>> finishing_;
  std::optional<Digest> state_digest_;
};

}  // namespace macaw::server
