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
#include "proto/admin/handler.h"
#include "proto/fleet/messages.h"
#include "scheduler/plan.h"
#include "server/engine/client_states.h"
#include "server/engine/draw.h"
#include "server/engine/evaluation.h"
#include "server/engine/host.h"
#include "server/engine/nodes.h"
#include "server/engine/open_phase.h"
#include "server/engine/orders.h"
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
  uint32_t workers = 1;           // the first round begins when so many have registered
  bool evaluation_gates = false;  // the next round waits for the evaluation (a stop rule is set)
  // After each round the engine waits for GoOnTo or StopHere. Set evaluation_gates with it, so that
  // the round's row is written by then. The first round of a session does not wait.
  bool stepwise = false;
  uint32_t completed = 0;   // rounds already done (a resumed run)
  uint32_t stop_after = 0;  // the run stops after so many of its rounds; 0: it does them all
  std::string stop_reason;  // for stop_after
  std::optional<Digest> data_digest;     // a resumed run accepts only nodes with this data and
  std::vector<NumericProfile> profiles;  // the first of these profiles, unless …
  bool mixed_profiles = false;           // … nodes with any profile may join
  std::optional<fleet::Blob>
      evaluate_first;  // the model after `completed`, if its evaluation is still owed
  Digest run_id;
  RoundRules round;              // when rounds end
  log::Decisions decisions;      // of the run that this one repeats; `round` should be the default
  TotalsUsed totals;             // of the plan, which the rule or the sampling computes with
  bool stateful = false;         // clients keep a state between rounds
  bool personal_models = false;  // clients have their own models beside the common one
  VersionIndex versions;         // of a resumed run
  Restored restored;             // of a run that continues inside a round
  // Returns session numbers: never 0, and no number twice. Default: 1, 2, 3, … (for tests). A
  // server uses random numbers.
  std::function<uint64_t()> session_numbers;
};

// The last round is always evaluated. `stop_after`: EngineOptions has it.
bool EvaluationDue(const RunPlan& run, Round round, uint32_t stop_after = 0);

// The rounds of a run as a state machine. Its input is events: calls of workers, finished work of
// the host, time. Its output is requests and records to the host. It knows which worker holds which
// leases, and when a round may close. It never sees a vector, a file, a socket or a clock. All
// methods must be called on one thread.
//
//   gathering → (waiting →) preparing → running → closing → preparing (next phase or round) → …
//     → draining → ended
//
// The rule of acceptance is in attempt_table.h. A phase closes when the policy allows it, every
// accepted part has been added, and the evaluation of the previous round is complete. A client that
// the policy does not wait for is given up in a record; what follows from that (later answers, the
// model) comes after the record.
class RoundEngine {
 public:
  // `host` and `scheduler` must outlive the engine.
  RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler, EngineHost& host);

  // Continues where an earlier server died (EngineOptions::restored). Call it before any call of a
  // worker.
  void Resume(TimePoint now);

  // ---- calls of workers (worker_calls.cc)
  // `table` is the decoded blob request.table. An error is the reason for the refusal.
  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request,
                                                fleet::ClientTable table, TimePoint now);
  void Lease(Ticket ticket, const fleet::LeaseRequest& request, Duration wait, TimePoint now);
  fleet::HeartbeatReply Heartbeat(const fleet::HeartbeatRequest& request, TimePoint now);
  // `decoded`: OK if the part's sums were decoded and the host holds them under `ticket`; else the
  // reason why not.
  void Commit(Ticket ticket, const fleet::CommitRequest& request, const absl::Status& decoded,
              TimePoint now);
  void Release(const fleet::ReleaseRequest& request, TimePoint now);
  fleet::UploadVerdict Offer(const fleet::UploadOffer& offer) const;

  // ---- work that the host has finished
  void BroadcastReady(Round round, Phase phase, absl::StatusOr<fleet::Broadcast> broadcast,
                      TimePoint now);
  void PartAdded(Ticket ticket, const absl::Status& status, TimePoint now);
  // `model`: the blob to evaluate, if this was the round's last phase and its evaluation is due.
  void Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model, TimePoint now);

  // ---- time and interruptions
  void Tick(TimePoint now);
  TimePoint NextDeadline() const;  // when to call Tick next
  void Interrupt();
  void Abort(absl::Status why);  // something outside the engine failed; the run ends as failed

  // ---- operators (operations.cc)
  // Makes the change and returns what follows from it, in words. An error says why it cannot be
  // made; then nothing has changed.
  absl::StatusOr<std::string> Operate(const admin::Change& change, TimePoint now);
  // Of a stepwise run: opens rounds up to this one, or ends the run where it waits, as a stop rule
  // does. Either has no effect on a run that is over.
  void GoOnTo(Round round, TimePoint now);
  void StopHere(std::string reason, TimePoint now);
  // Fills in everything of the status that the engine knows.
  void Describe(admin::RunStatus& status, TimePoint now) const;

  const Nodes& nodes() const { return nodes_; }
  const Roster& roster() const { return roster_; }
  // Of all nodes that ever registered, in order and each once. More than one only with
  // EngineOptions::mixed_profiles; then the run cannot be reproduced.
  const std::vector<NumericProfile>& profiles() const { return profiles_; }
  uint32_t completed() const { return completed_; }
  // Whether a phase of the open round has already changed the algorithm's state. Such a state is
  // between two rounds' states and must not be written to a checkpoint.
  bool mid_round() const { return phase_.phase().value > 0 && completed_ < phase_.round().value; }
  // False while rounds that an earlier server had closed are done again. The leases and parts of
  // the workers belong to the open round after those, and can be judged only once it is open.
  bool caught_up() const { return options_.restored.phases.empty(); }
  // Whether the open phase was closed by an earlier server and is now done again. Its events were
  // reported then.
  bool redoing() const;

  // ---- client states
  // The versions for a checkpoint of the last complete round. `staged`: kIncluded if the open round
  // is complete and Applied will be called next.
  VersionIndex SnapshotVersions(StateVersions::Staged staged) {
    return states_.versions().Snapshot(staged);
  }
  // Checkpoints of rounds before `oldest` have been deleted.
  void CheckpointsFrom(Round oldest) { states_.versions().CheckpointsFrom(oldest); }
  // Digest of all client states (proto/fleet/state_digest.h). Set when a stateful run has finished.
  const std::optional<Digest>& state_digest() const { return state_digest_; }

 private:
  enum class State : uint8_t {
    kGathering,
    kWaiting,
    kPreparing,
    kRunning,
    kClosing,
    kDraining,
    kEnded
  };
  struct Ending {
    RunEnd end = RunEnd::kFinished;
    std::string reason;
  };

  // ---- the story (round_engine.cc)
  bool ReadyToBegin() const;
  void Begin(TimePoint now);
  void NextRound(TimePoint now);
  void OpenRound(Round round, TimePoint now);
  // The clients from which the round is drawn, as ranges; empty: everybody. nullopt: too few.
  std::optional<std::vector<ClientId>> PresentFor(Round round, TimePoint now);
  std::vector<ClientId> Present(TimePoint now) const;
  // A node was heard: opens the round that waits for clients, if they are enough now.
  void Retry(TimePoint now) {
    if (state_ == State::kWaiting) NextRound(now);
  }
  void Prepare();
  void PlanQueues();
  void PlanQueue(HoldingId holding, const scheduler::Cohort& waiting, bool news);
  void OpenEvaluation(Round round, fleet::Blob model, TimePoint now);
  void CloseEvaluation(TimePoint now);
  void AfterEvaluation(const std::optional<std::string>& stop, TimePoint now);
  uint32_t LastRound() const {
    return options_.stop_after > 0 ? options_.stop_after : options_.run.rounds;
  }
  bool WaitsToGoOn() const {  // between two rounds of a stepwise run, or behind the last one
    return options_.stepwise && caught_up() && orders_.go_on_to <= completed_;
  }
  void FinishRounds(TimePoint now);  // all that are to be done are done
  // Ends a run whose rounds are done. A stateful run ends only after all states were digested.
  void Finish(RunEnd end, std::string reason, TimePoint now);
  void End(RunEnd end, absl::Status status, std::string reason);
  void Fail(absl::Status status) { End(RunEnd::kFailed, std::move(status), ""); }
  Restored::PhaseStory* Before();  // the open phase as an earlier server left it; null if none
  void RestorePhase(const Restored::PhaseStory& before, TimePoint now);

  // ---- the end of a phase (closing.cc)
  // Does whatever is due: finishes the evaluation, closes the phase, ends the run.
  void Advance(TimePoint now);
  Standing Progress() const;
  Duration HeartbeatEvery() const { return options_.lease_timeout / 3; }
  // Asks the policy about the running phase and does what it says. False: the phase goes on.
  bool MayClose(TimePoint now);
  void SetDeadline(TimePoint now);
  void PassDeadline(TimePoint now);
  void GiveUpMissing(Course course, TimePoint now);
  // The server's reason to give a client up that did not come in time. `node` has it leased.
  log::GivenUp WhyLate(const Seat& seat, std::optional<WorkerId> node, TimePoint now) const;
  void DropRound(const std::string& why);
  // Notes that every client of the phase was given up. False: this happened too often in a row, and
  // the run has ended.
  bool MoveOnWithoutClients();

  // ---- operators (operations.cc)
  absl::StatusOr<std::string> Pause(const admin::Change& change);
  absl::StatusOr<std::string> GoOn(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Drain(const admin::Change& change);
  absl::StatusOr<std::string> AbortRound(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Quarantine(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Admit(const admin::Change& change);
  void RecordOperation(const admin::Change& change);
  void EndDrained();
  // If an operator has asked for it, and no part is being added: drops what the open phase has, and
  // begins it again.
  void BeginPhaseAgain(TimePoint now);
  absl::Status CheckQuarantine(const std::string& name) const;
  admin::RunState RunStateNow() const;
  admin::Step StepNow() const;
  void DescribeMissing(admin::RunStatus& status) const;
  void DescribeNodes(admin::RunStatus& status, TimePoint now) const;

  // ---- workers (worker_calls.cc)
  absl::Status CheckNode(const fleet::RegisterRequest& request,
                         const fleet::ClientTable& table) const;
  Node& Join(const fleet::RegisterRequest& request, fleet::ClientTable table, Node node,
             TimePoint now);
  SessionId NewSession() const;
  void Lose(WorkerId id, const std::string& why, TimePoint now);
  // Answers the call with the work that there is for the node. False: there is none, and the call
  // is not answered.
  bool Serve(Node& node, const fleet::LeaseRequest& request, Ticket ticket, TimePoint now);
  void ServeParked(TimePoint now);
  void ServeParked(Node& node, TimePoint now);
  void ServeAfterCommit(const Node& committed, TimePoint now);
  // Tells the parked nodes of this holding to commit, if no more work can come for them.
  void DismissParked(HoldingId holding, TimePoint now);
  bool more_to_lease(HoldingId holding) const {
    return state_ == State::kRunning && phase_.waiting(holding);
  }

  // ---- nodes whose owners do not let them work now (declining.cc)
  void NoteDeclined(Node& node, const std::string& why);
  // Answers a call of such a node, which gets no work.
  void AnswerDeclining(Node& node, Poll poll, TimePoint now);
  // Gives up what waits for such nodes alone: clients of the open phase, and the evaluation of
  // clients that one of them owns. `only`: of this holding.
  void GiveUpDeclined(std::optional<HoldingId> only = std::nullopt);
  // How many clients it must be possible to train before a round opens.
  uint64_t NeededToOpen() const;

  // ---- commits (commits.cc)
  fleet::CommitReply Judge(Ticket ticket, Node& node, const fleet::CommitRequest& request,
                           const absl::Status& decoded);
  absl::Status CheckEvaluations(const Node& node,
                                const std::vector<fleet::EvaluationResult>& results) const;
  void TakeEvaluations(const Node& node, const std::vector<fleet::EvaluationResult>& results);
  // Returns the part without the clients whose states this node could not read but other nodes may
  // read. These clients are queued again.
  fleet::Part WithoutUnreadable(const Node& node, fleet::Part part);
  void Accept(Ticket ticket, const Node& node, uint64_t commit_id, const fleet::Part& part);
  Remedy RemedyFor(Trouble trouble) const;
  void OnDeaths(const std::string& node, const std::vector<Attempt>& died);

  template <typename T>
  void Record(std::optional<T> record) {
    if (record.has_value()) host_.Record(*std::move(record));
  }

  EngineOptions options_;
  const HostileClients hostile_;  // whose own rows are not evaluated
  const scheduler::Scheduler& scheduler_;
  EngineHost& host_;
  const TimelyRounds policy_;

  State state_ = State::kGathering;
  uint32_t completed_ = 0;    // rounds
  uint32_t lost_rounds_ = 0;  // number of rounds in a row before the open one that were lost
  bool round_lost_ = false;   // a phase of the open round lost every client
  TimePoint deadline_ = TimePoint::max();  // of the open phase, or the end of its extension
  bool overdue_ = false;                   // the open phase's deadline has passed
  bool interrupt_ = false;
  Round said_waiting_;            // the last round that had to wait for clients
  std::optional<Ending> ending_;  // how the run ends once its client states have been digested
  Orders orders_;                 // of operators

  Roster roster_;
  std::vector<NumericProfile> profiles_;
  Nodes nodes_;
  Speeds speeds_;
  std::optional<Draw> draw_;  // set when the run begins
  OpenPhase phase_;
  Troubles troubles_;
  Evaluation evaluation_;
  ClientStates states_;
  size_t staged_before_phase_ = 0;  // state versions that the round's earlier phases staged
  std::optional<Digest> state_digest_;
  std::set<WorkerId> hold_nothing_;  // nodes that reported no leases before caught_up()
};

}  // namespace macaw::server
