#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "scheduler/plan.h"
#include "server/engine/client_states.h"
#include "server/engine/draw.h"
#include "server/engine/evaluation.h"
#include "server/engine/host.h"
#include "server/engine/nodes.h"
#include "server/engine/open_phase.h"
#include "server/engine/restored.h"
#include "server/engine/roster.h"
#include "server/engine/round_policy.h"
#include "server/engine/speeds.h"
#include "server/engine/troubles.h"
#include "server/log/history.h"

namespace macaw::server {

struct EngineOptions {
  RunPlan run;
  uint32_t epoch = 1;
  Duration lease_timeout = FromSeconds(30);
  CompleteRounds::Limits limits;
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
  Restored restored;        // of one that goes on inside a round
  // Makes the numbers of sessions; never 0, never twice. Default: 1, 2, 3, …, for tests. A server
  // gives random ones.
  std::function<uint64_t()> session_numbers;
};

// The last round is always evaluated.
bool EvaluationDue(const RunPlan& run, Round round);

// The rounds of a run as a state machine: events in (calls of workers, finished work, time),
// requests and records to the host out. It knows who is leased what and when a round may close; it
// never sees a vector, a file, a socket or a clock. All methods on one thread.
//
//   gathering → preparing → running → closing → preparing (next phase or round) → … → draining →
//   ended
//
// Rule of acceptance: attempt_table.h. A phase closes when the policy lets it, every accepted part
// has been added, and the evaluation of the round before is complete.
class RoundEngine {
 public:
  // `host` and `scheduler` must outlive the engine.
  RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler, EngineHost& host);

  // Goes on where an earlier server was (EngineOptions::restored). Before any call of a worker.
  void Resume(TimePoint now);

  // ---- calls of workers (worker_calls.cc)
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

  // ---- work the host has finished
  void BroadcastReady(Round round, Phase phase, absl::StatusOr<fleet::Blob> broadcast,
                      TimePoint now);
  void PartAdded(Ticket ticket, const absl::Status& status, TimePoint now);
  // `model`: the blob to evaluate, when this was the round's last phase and its evaluation is due.
  void Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model, TimePoint now);

  // ---- time and people
  void Tick(TimePoint now);
  TimePoint NextDeadline() const;  // when Tick has something to do next
  void Interrupt();
  void Abort(absl::Status why);  // something outside the engine failed; the run ends as failed

  const Nodes& nodes() const { return nodes_; }
  const Roster& roster() const { return roster_; }
  // Of the first node that registered, which all others must have; nothing while nobody has.
  const std::optional<NumericProfile>& profile() const { return profile_; }
  uint32_t completed() const { return completed_; }
  // Whether a phase of the open round has moved the algorithm already: its state is not one to
  // keep.
  bool mid_round() const { return phase_.phase().value > 0 && completed_ < phase_.round().value; }
  // False while rounds that an earlier server had closed are done again: what workers have is of
  // the round behind them, and can be judged then.
  bool caught_up() const { return options_.restored.phases.empty(); }
  // The open phase was closed by an earlier server: it is done again, and nothing of it is news.
  bool redoing() const;

  // ---- client states
  // What a checkpoint of the last whole round must hold; `closing`: the open one is whole, and
  // Applied is about to say so.
  VersionIndex SnapshotVersions(StateVersions::Staged staged) {
    return states_.versions().Snapshot(staged);
  }
  // Older checkpoints than that of this round are gone for good.
  void CheckpointsFrom(Round oldest) { states_.versions().CheckpointsFrom(oldest); }
  // Over all client states (proto/fleet/state_digest.h), once a stateful run has come to its end.
  const std::optional<Digest>& state_digest() const { return state_digest_; }

 private:
  enum class State : uint8_t { kGathering, kPreparing, kRunning, kClosing, kDraining, kEnded };
  struct Ending {
    RunEnd end = RunEnd::kFinished;
    std::string reason;
  };

  // ---- the story (round_engine.cc)
  bool ReadyToBegin() const;
  void Begin(TimePoint now);
  void NextRound(TimePoint now);
  void OpenRound(Round round, TimePoint now);
  void Prepare();
  void PlanQueues();
  void PlanQueue(HoldingId holding, const scheduler::Cohort& waiting, bool news);
  // Whatever is due: finishes the evaluation, closes the phase, ends the run.
  void Advance(TimePoint now);
  void OpenEvaluation(Round round, fleet::Blob model, TimePoint now);
  void CloseEvaluation(TimePoint now);
  void AfterEvaluation(const std::optional<std::string>& stop, TimePoint now);
  // Notes a phase whose every client was given up. False: it was one too many; the run has ended.
  bool MoveOnWithoutClients();
  // The run has done its rounds: ends it, in a stateful run once all states have been digested.
  void Finish(RunEnd end, std::string reason, TimePoint now);
  void End(RunEnd end, absl::Status status, std::string reason);
  void Fail(absl::Status status) { End(RunEnd::kFailed, std::move(status), ""); }
  Restored::PhaseStory* Before();  // of the open phase, as an earlier server left it
  void RestorePhase(const Restored::PhaseStory& before, TimePoint now);

  // ---- workers (worker_calls.cc)
  absl::Status CheckNode(const fleet::RegisterRequest& request,
                         const fleet::ClientTable& table) const;
  Node& Join(const fleet::RegisterRequest& request, fleet::ClientTable table, Node node,
             TimePoint now);
  SessionId NewSession() const;
  void Lose(WorkerId id, const std::string& why, TimePoint now);
  // Gives the node what there is for it. False: nothing.
  bool Serve(Node& node, const fleet::LeaseRequest& request, Ticket ticket, TimePoint now);
  void ServeParked(TimePoint now);
  void ServeParked(Node& node, TimePoint now);
  void ServeAfterCommit(const Node& committed, TimePoint now);
  // Those with this holding for whom nothing can come any more commit what they have.
  void DismissParked(HoldingId holding, TimePoint now);
  bool more_to_lease(HoldingId holding) const {
    return state_ == State::kRunning && phase_.waiting(holding);
  }

  // ---- commits (commits.cc)
  fleet::CommitReply Judge(Ticket ticket, Node& node, const fleet::CommitRequest& request,
                           const absl::Status& decoded);
  absl::Status CheckEvaluations(const Node& node,
                                const std::vector<fleet::EvaluationResult>& results) const;
  void TakeEvaluations(const Node& node, const std::vector<fleet::EvaluationResult>& results);
  // The part without the clients whose states its node could not read, where others may.
  fleet::Part WithoutUnreadable(const Node& node, fleet::Part part);
  void Accept(Ticket ticket, const Node& node, uint64_t commit_id, const fleet::Part& part);
  Remedy RemedyFor(Trouble trouble) const;
  void OnDeaths(const std::string& node, const std::vector<Attempt>& died);

  template <typename T>
  void Record(std::optional<T> record) {
    if (record.has_value()) host_.Record(*std::move(record));
  }

  EngineOptions options_;
  const scheduler::Scheduler& scheduler_;
  EngineHost& host_;
  const CompleteRounds policy_;

  State state_ = State::kGathering;
  uint32_t completed_ = 0;    // rounds
  uint32_t lost_rounds_ = 0;  // in a row, before the open one
  bool round_lost_ = false;   // a phase of the open one lost every client
  bool interrupt_ = false;
  std::optional<Ending> ending_;  // how the run ends once its client states have been digested

  Roster roster_;
  std::optional<NumericProfile> profile_;
  Nodes nodes_;
  Speeds speeds_;
  std::optional<Draw> draw_;  // once the run has begun
  OpenPhase phase_;
  Troubles troubles_;
  Evaluation evaluation_;
  ClientStates states_;
  std::optional<Digest> state_digest_;
  std::set<WorkerId> hold_nothing_;  // as they said before the engine had caught up
};

}  // namespace macaw::server
