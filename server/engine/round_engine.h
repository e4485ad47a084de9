#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/admin/handler.h"
#include "proto/fleet/messages.h"
#include "scheduler/plan.h"
#include "server/engine/absence.h"
#include "server/engine/client_states.h"
#include "server/engine/draw.h"
#include "server/engine/drawn_round.h"
#include "server/engine/effects.h"
#include "server/engine/engine_options.h"
#include "server/engine/evaluation.h"
#include "server/engine/nodes.h"
#include "server/engine/open_phase.h"
#include "server/engine/operator_state.h"
#include "server/engine/restored_phases.h"
#include "server/engine/roster.h"
#include "server/engine/round_policy.h"
#include "server/engine/speeds.h"
#include "server/engine/troubles.h"

namespace macaw::server {

// The rounds of a run as a pure state machine: (state, event) → (state, Effects). Events are calls
// of workers and operators, the results of orders, and time. Effects (effects.h) are records,
// replies and orders. The engine knows which worker holds which leases, and when a round may close.
// It never sees a vector, a file, a socket or a clock, and calls only the scheduler. All methods
// must be called on one thread.
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
  // `scheduler` must outlive the engine.
  RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler);

  // Continues where an earlier server died. The first event, if it comes at all.
  Effects Resume(Restored restored, TimePoint now);

  // ---- calls of workers (joining.cc, worker_calls.cc, commits.cc)
  // `table` is the decoded blob request.table. An error is the reason for the refusal.
  Answered<absl::StatusOr<fleet::RegisterReply>> Register(const fleet::RegisterRequest& request,
                                                          fleet::ClientTable table, TimePoint now);
  Effects Lease(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now);
  Answered<fleet::HeartbeatReply> Heartbeat(const fleet::HeartbeatRequest& request, TimePoint now);
  // `decoded`: OK if the part's sums were decoded and the caller holds them under `ticket`; else
  // the reason why not.
  Effects Commit(Ticket ticket, fleet::CommitRequest request, const absl::Status& decoded,
                 TimePoint now);
  Effects Release(const fleet::ReleaseRequest& request, TimePoint now);
  // The server let the node wait for its turn to download. It does not count against what the node
  // has leased, up to WaitLimits::lease_limit.
  void NoteWaited(const std::string& name, Duration time);
  fleet::UploadVerdict Offer(const fleet::UploadOffer& offer) const;
  // Whether the part is of the open phase, and all clients that it names are leased to the session.
  bool Leases(SessionId session, const fleet::Part& part) const;
  uint64_t LeasedTo(SessionId session) const;  // how many clients; 0: there is no such session

  // ---- results of orders
  Effects BroadcastReady(Round round, Phase phase, absl::StatusOr<PhaseModels> models,
                         TimePoint now);
  Effects PartAdded(Ticket ticket, const absl::Status& status, TimePoint now);
  // `model`: the blob to evaluate, if this was the round's last phase and its evaluation is due.
  // `without`: the models to evaluate beside it.
  Effects Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
                  TimePoint now, std::vector<ModelWithout> without = {});
  // `stop`: the reason, if the run stops now. Only a run with evaluation_gates may be stopped.
  Effects EvaluationJudged(Round round, const std::optional<std::string>& stop, TimePoint now);

  // ---- time and interruptions
  Effects Tick(TimePoint now);
  TimePoint NextDeadline() const;  // when to call Tick next
  Effects Interrupt();  // only when caught_up(): the run ends with the rounds that are completed
  Effects Abort(absl::Status why);  // something outside the engine failed; the run ends as failed

  // ---- operators (operations.cc, description.cc)
  // Makes the change and answers what follows from it, in words. An error says why it cannot be
  // made; then nothing has changed.
  Answered<absl::StatusOr<std::string>> Operate(const admin::Change& change, TimePoint now);
  // Of a stepwise run: opens rounds up to this one, or ends the run where it waits, as a stop rule
  // does. Either has no effect on a run that is over.
  Effects GoOnTo(Round round, TimePoint now);
  Effects StopHere(std::string reason, TimePoint now);
  // Fills in everything of the status that the engine knows.
  void Describe(admin::RunStatus& status, TimePoint now) const;

  const Nodes& nodes() const { return nodes_; }
  const Roster& roster() const { return roster_; }
  // Of all nodes that ever registered, in order and each once. More than one only with
  // EngineOptions::mixed_profiles; then the run cannot be reproduced.
  const std::vector<NumericProfile>& profiles() const { return profiles_; }
  uint32_t completed() const { return completed_; }
  const virtual_time::ClockState& clock() const { return clock_; }  // after those rounds
  // False while rounds that an earlier server had closed are done again. The leases and parts of
  // the workers belong to the open round after those, and can be judged only once it is open.
  bool caught_up() const { return restored_.empty(); }
  // Whether the open phase was closed by an earlier server and is now done again. Its events were
  // reported then.
  bool redoing() const { return restored_.Closed(phase_.round(), phase_.phase()); }

  // ---- client states
  // The versions for a checkpoint of the last complete round. `staged`: kIncluded if the open round
  // is complete and Applied will be called next.
  VersionIndex SnapshotVersions(StateVersions::Staged staged) {
    if (begins_anew_ && staged == StateVersions::Staged::kIncluded) return {};
    return states_.versions().Snapshot(staged);
  }
  // Whether states were lost after which all clients begin anew, and the round that does it is not
  // done. A checkpoint of the last complete round says so.
  bool begins_anew() const { return begins_anew_; }
  // What rounds told of their clients, where the sampling learns from it; as SnapshotVersions.
  std::string SnapshotFeedback(StateVersions::Staged staged);
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

  struct OwedStates {
    HoldingId holding;
    std::string node, why;
  };

  Effects Take() { return std::exchange(effects_, {}); }
  void Record(log::Record record, JournalData data = {}) {
    effects_.records.push_back({.record = std::move(record), .journal = std::move(data)});
  }
  template <typename T>
  void Record(std::optional<T> record) {
    if (record.has_value()) Record(log::Record(*std::move(record)));
  }
  void Answer(Ticket ticket, fleet::LeaseReply reply) {
    Reply& answered = effects_.replies.emplace_back();
    answered.ticket = ticket;
    answered.answer.emplace<fleet::LeaseReply>(std::move(reply));
  }
  void Answer(Ticket ticket, fleet::CommitReply reply) {
    Reply& answered = effects_.replies.emplace_back();
    answered.ticket = ticket;
    answered.answer.emplace<fleet::CommitReply>(std::move(reply));
  }

  // ---- the story (round_engine.cc)
  bool ReadyToBegin() const;
  // Begins a resumed run without the owners that are missing, if the quorum is there.
  void PassGatheringDeadline(TimePoint now);
  void Begin(TimePoint now);
  void NextRound(TimePoint now);
  void OpenRound(Round round, TimePoint now);
  absl::StatusOr<DrawnRound> DrawNext(Round round);
  // Takes up what the earlier sessions of a run knew of its clients.
  absl::Status LoadFeedback();
  // Tells the sampling what the round told that was closed last, once.
  void ObserveRound();
  // The clients from which the round is drawn, as ranges; empty: everybody. nullopt: too few.
  std::optional<std::vector<ClientId>> PresentFor(Round round, TimePoint now);
  std::vector<ClientId> Present(TimePoint now);
  // A node was heard. Looks again for enough clients only when the nodes that were heard since the
  // last look may make up for what was missing then.
  void OnHeard(Node& node, TimePoint now);
  void Retry(TimePoint now) {
    if (state_ == State::kWaiting && missing_clients_ == 0) NextRound(now);
  }
  void Prepare();
  void PlanQueues();
  void PlanQueue(HoldingId holding, const scheduler::Cohort& waiting, bool news);
  void StartPhase(absl::StatusOr<PhaseModels> models, TimePoint now);
  void MoveOn(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
              std::vector<ModelWithout> without, TimePoint now);
  void PassTime(TimePoint now);
  // Leases of the node have expired; of these clients.
  void OnLate(WorkerId id, const std::vector<ClientId>& clients, TimePoint now);
  uint32_t LastRound() const {
    return options_.stop_after > 0 ? options_.stop_after : options_.run.rounds;
  }
  bool WaitsToGoOn() const {  // between two rounds of a stepwise run, or behind the last one
    return options_.stepwise && caught_up() && operators_.go_on_to <= completed_;
  }
  void FinishRounds(TimePoint now);  // all that are to be done are done
  // Ends a run whose rounds are done. A stateful run ends only after all states were digested.
  void Finish(RunEnd end, std::string reason, TimePoint now);
  void End(RunEnd end, absl::Status status, std::string reason);
  void Fail(absl::Status status) { End(RunEnd::kFailed, std::move(status), ""); }

  // ---- evaluation (evaluating.cc)
  void OpenEvaluation(Round round, fleet::Blob model, std::vector<ModelWithout> without,
                      TimePoint now);
  void OnEvaluationComplete();
  void AfterEvaluation(Round round, const std::optional<std::string>& stop, TimePoint now);
  absl::Status CheckEvaluations(const Node& node,
                                const std::vector<fleet::EvaluationResult>& results) const;
  void TakeEvaluations(const Node& node, const std::vector<fleet::EvaluationResult>& results,
                       TimePoint now);
  // Opens the board, without the tasks that are known not to be done.
  void BeginEvaluation(EvaluationBoard board, TimePoint now);
  // Gives up tasks of the open evaluation; each gets its reason and message from `why(task)`.
  template <typename Why>
  void GiveUpTasks(const std::vector<uint64_t>& tasks, const Why& why);
  void GiveUpTasks(const std::vector<uint64_t>& tasks, fleet::LeftOutReason reason,
                   const std::string& why);
  std::vector<uint64_t> AllTasks() const;  // of the open evaluation, that are not finished
  void DoTasksWithout(HoldingId rows, fleet::LeftOutReason reason, const std::string& why);

  // ---- what is not waited for (waits.cc)
  // The time after which leases of these clients end, whatever the node reports.
  Duration LeaseLimit(const Node& node, const fleet::TrainingLease& lease);
  Duration TaskLimit() const;
  // Renews what the node has leased, up to these limits.
  void Renew(const Node& node, TimePoint now);
  void SetEvaluationDeadline(TimePoint now);
  void PassEvaluationDeadline(TimePoint now);
  void NoteAbsent(const Node& lost, TimePoint now);
  void NotePresent(const Node& joined);
  void NoteAbsentAtBegin(TimePoint now);
  // Gives up tasks that wait for rows that are gone; `rows`: of these alone.
  void GiveUpGone(const std::vector<HoldingId>& rows);
  // Gives up what waits for owners that an operator has given up and that are not there.
  void GiveUpAbandoned();
  bool IsAbandoned(HoldingId holding) const;
  // Ends a run that is drained and whose open round waits only for nodes that are gone.
  void EndDrainedInVain();

  // ---- clients' states that are lost (lost_states.cc)
  // The node kept the states of its clients in its memory, and is gone or new.
  void LoseStates(HoldingId holding, const std::string& node, const std::string& why);
  void LoseStatesNow(HoldingId holding, const std::string& node, const std::string& why);
  void LoseStatesOf(std::vector<ClientId> clients, const std::string& node, const std::string& why);
  // Those that were lost between the last session and this one.
  void LoseStatesBefore();
  // Whether the open phase can train the client again without the state that it was leased with.
  bool MayLoseState(ClientId client) const;
  // Evaluations that read the states of the holding, and digests of them.
  void GiveUpTasksOfStates(HoldingId holding, const std::string& node);
  // Those that were lost while earlier rounds were done again, or while a phase was applied.
  void LoseStatesOwed();
  // The clients that lost their states at this phase, as the records of the run say. Null: none.
  const log::LostStates::At* StatesLostAt(Round round, Phase phase) const;
  void ForgetAtOpening();
  void ForgetAtClose();
  void ForgetSeats(const std::vector<ClientId>& clients);

  // ---- going on where an earlier server died (restoring.cc)
  void RestorePhase(const Restored::PhaseStory& before, TimePoint now);
  void RestoreParts(const std::vector<Restored::AcceptedPart>& parts, TimePoint expires);
  void RestoreLeases(const Restored::PhaseStory& before, TimePoint now);
  void RestoreTrainOn(TimePoint now);
  void RestoreLease(const Attempt& attempt, WorkerId node, TimePoint now);

  // ---- the end of a phase (closing.cc)
  // Does whatever is due: finishes the evaluation, closes the phase, ends the run.
  void Advance(TimePoint now);
  Standing Progress() const;
  Duration HeartbeatEvery() const { return options_.lease_timeout / 3; }
  // The least time that a node gets which is heard but brings no result.
  Duration LeastLease() const { return WaitLimits::kLeastLeases * options_.lease_timeout; }
  // What the policy says of the running phase.
  Course Decide() const {
    return phase_.live() ? DecideStep(options_.round, phase_.arrivals(), Progress())
                         : policy_.Decide(Progress());
  }
  // Asks the policy about the running phase and does what it says. False: the phase goes on.
  bool MayClose(TimePoint now);
  void SetDeadline(TimePoint now);
  void PassDeadline(TimePoint now);
  void GiveUpMissing(Course course, TimePoint now);
  // The server's reason to give a client up that did not come in time. `node` has it leased.
  // `team`: the nodes that could do it.
  log::GivenUp WhyLate(const Nodes::Team& team, std::optional<WorkerId> node, TimePoint now) const;
  void DropRound(const std::string& why);
  // Notes that every client of the phase was given up. False: this happened too often in a row, and
  // the run has ended.
  bool MoveOnWithoutClients();

  // ---- operators (operations.cc)
  absl::StatusOr<std::string> Change(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Pause(const admin::Change& change);
  absl::StatusOr<std::string> GoOn(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Drain(const admin::Change& change);
  absl::StatusOr<std::string> AbortRound(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Quarantine(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> Admit(const admin::Change& change);
  absl::StatusOr<std::string> GiveUp(const admin::Change& change, TimePoint now);
  absl::StatusOr<std::string> SkipEvaluation(const admin::Change& change, TimePoint now);
  void RecordOperation(const admin::Change& change);
  void EndDrained(const std::string& why = "");
  // If an operator has asked for it, and no part is being added: drops what the open phase has, and
  // begins it again.
  void BeginPhaseAgain(TimePoint now);
  absl::Status CheckQuarantine(const std::string& name) const;
  admin::RunState RunStateNow() const;
  admin::Step StepNow() const;
  void DescribeMissing(admin::RunStatus& status) const;
  void DescribeNodes(admin::RunStatus& status, TimePoint now) const;

  // ---- workers that come and go (joining.cc)
  absl::StatusOr<fleet::RegisterReply> Enter(const fleet::RegisterRequest& request,
                                             fleet::ClientTable table, TimePoint now);
  Node& Join(const fleet::RegisterRequest& request, fleet::ClientTable table, Node node,
             TimePoint now);
  SessionId NewSession() const;
  void ForgetWhatOnlyItSaid(const Node& gone);
  void Lose(WorkerId id, const std::string& why, TimePoint now);

  // ---- calls of workers (worker_calls.cc)
  void FindWork(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now);
  // Answers the call with the work that there is for the node. False: there is none, and the call
  // is not answered.
  bool Serve(Node& node, const fleet::LeaseRequest& request, Ticket ticket, TimePoint now);
  // The clients that the node is leased now, if there are any for it.
  std::optional<fleet::TrainingLease> ServeTraining(Node& node, const fleet::LeaseRequest& request,
                                                    fleet::LeaseReply& reply, TimePoint now);
  // Rounds that do not wait for each other (arriving.cc). TakeArrival: a node asks in which round a
  // client that it has trained counts. ServeArrival, ServeArrivals: as Serve, for such a call and
  // for those that wait, in order. EvaluatesFirst: the node, so that its client counts in no round.
  void TakeArrival(Node& node, Poll poll, TimePoint now);
  bool ServeArrival(Node& node, const fleet::LeaseRequest& request, Ticket ticket, TimePoint now);
  void ServeArrivals(TimePoint now);
  bool EvaluatesFirst(const Node& node) const;
  // Gives up clients of the open round that wait for rows that are gone.
  void GiveUpGoneClients(const std::vector<HoldingId>& rows);
  std::string WhyGone() const;
  // Tries again to answer parked calls: of this node, of these nodes, of all for which there may be
  // work, of those with this holding, of those that may do what this node gave back.
  void ServeParked(Node& node, TimePoint now);
  void ServeEach(const std::vector<WorkerId>& nodes, TimePoint now);
  void ServeParked(TimePoint now);
  void ServeHolding(HoldingId holding, TimePoint now);
  void ServeOthers(const Node& node, TimePoint now);
  // Tells parked nodes that hold leases to commit, if no more work can come for them.
  void DismissParked(HoldingId holding, TimePoint now);
  void Dismiss(Node& node, TimePoint now);
  // Nobody trains for a round that an earlier server has closed.
  bool more_to_lease(HoldingId holding) const {
    return state_ == State::kRunning && phase_.waiting(holding) && !redoing();
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
  void TakeCommit(Ticket ticket, fleet::CommitRequest request, const absl::Status& decoded,
                  TimePoint now);
  // Whether the part counts. Changes nothing.
  fleet::CommitReply Judge(const Node& node, const fleet::Part& part,
                           const absl::Status& decoded) const;
  bool IsOpen(const fleet::Part& part) const {
    return state_ == State::kRunning && part.round == phase_.round() &&
           part.phase == phase_.phase();
  }
  void TurnDown(const Node& node, uint64_t commit_id, const fleet::Part& part,
                const fleet::CommitReply& why);
  // Returns the part without the clients that this node left out and other nodes may train. These
  // clients are queued again.
  fleet::Part WithoutDoubtful(const Node& node, fleet::Part part, TimePoint now);
  // Whether another node should train the client, because this one had trouble with it.
  bool LeaveToOthers(const Node& node, ClientId client, TimePoint now) const;
  // Counts the part, and orders its sum to be added.
  void Accept(Ticket ticket, Node& node, uint64_t commit_id, fleet::Part part, TimePoint now);
  Remedy RemedyFor(Trouble trouble) const;
  void OnDeaths(const std::string& node, const std::vector<Attempt>& died, TimePoint now);

  const EngineOptions options_;
  const HostileClients hostile_;  // whose own rows are not evaluated
  const bool live_;  // rounds do not wait for each other, and devices arrive when they are ready
  const scheduler::Scheduler& scheduler_;
  const TimelyRounds policy_;
  Effects effects_;  // of the event that is being handled

  State state_ = State::kGathering;
  uint32_t completed_ = 0;  // rounds
  virtual_time::ClockState clock_;
  uint32_t lost_rounds_ = 0;  // number of rounds in a row before the open one that were lost
  // Whether a phase of the open round lost every client, by the word of one node alone or not.
  enum class Lost : uint8_t { kNo, kByOneNode, kYes };
  Lost round_lost_ = Lost::kNo;
  // Of the open phase, or the end of its extension; before the first round, of the nodes to come.
  TimePoint deadline_ = TimePoint::max();
  bool overdue_ = false;                              // the open phase's deadline has passed
  TimePoint evaluation_deadline_ = TimePoint::max();  // of the open evaluation
  bool interrupt_ = false;
  Round said_waiting_;            // the last round that had to wait for clients
  uint64_t missing_clients_ = 0;  // for the round that waits: those not heard since the last count
  uint64_t presence_count_ = 0;   // how often the present clients have been counted
  bool passed_over_ = false;      // Serve has left clients for other nodes
  std::optional<Ending> ending_;  // how the run ends once its client states have been digested
  OperatorState operators_;
  RestoredPhases restored_;

  // Of a resumed run that gathers its nodes: the owners' clients that are awaited, and whether the
  // run may begin with fewer nodes (round.deadline).
  absl::btree_set<HoldingId> awaited_;
  bool gathered_ = false;

  Roster roster_;
  std::vector<NumericProfile> profiles_;
  Nodes nodes_;
  Absence absence_;
  Speeds speeds_;
  std::optional<Draw> draw_;  // set when the run begins
  // Of a sampling that learns: whom the open round asks, and what its last closed phase told.
  std::vector<AskedClient> asked_;
  std::vector<scheduler::ClientFact> facts_;
  Round observed_;  // the round of which the sampling was told last
  OpenPhase phase_;
  Troubles troubles_;
  Evaluation evaluation_;
  ClientStates states_;
  size_t staged_before_phase_ = 0;  // state versions that the round's earlier phases staged
  std::optional<Digest> state_digest_;
  std::set<WorkerId> hold_nothing_;           // nodes that reported no leases before caught_up()
  bool parked_early_ = false;                 // calls for work were parked before caught_up()
  std::vector<Restored::TrainsOn> train_on_;  // until this server opens a round
  std::deque<WorkerId> arrivals_;  // nodes whose clients wait to count, in the order of arrival
  std::vector<OwedStates> states_owed_;  // LoseStatesOwed
  bool begins_anew_ = false;  // after the open round, or the next one, no client has a state
};

}  // namespace macaw::server
