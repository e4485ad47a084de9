// The course of a run: opening of rounds, evaluation, the end, and time. When rounds close is in
// closing.cc, registration in joining.cc, the calls of workers in worker_calls.cc, commits in
// commits.cc.
#include "server/engine/round_engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/logging.h"
#include "core/status.h"
#include "plan/real_arrivals.h"
#include "server/engine/begin_checks.h"
#include "server/engine/drawn_round.h"
#include "server/engine/part_checks.h"
#include "server/engine/totals.h"
#include "training/api/class_counts.h"

namespace macaw::server {

RoundEngine::RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler)
    : options_(std::move(options)),
      hostile_(HostileOf(options_.run)),
      live_(DevicesArrive(options_.run) && options_.decisions.empty()),
      scheduler_(scheduler),
      policy_(options_.limits, options_.round),
      completed_(options_.completed),
      clock_(options_.clock),
      profiles_(options_.profiles),
      nodes_(options_.lease_timeout),
      absence_(options_.lease_timeout),
      phase_(options_.epoch),
      evaluation_(options_.epoch),
      states_(options_.stateful, options_.versions, options_.run.clients) {
  operators_.pause = options_.paused;
  operators_.quarantine = options_.quarantine;
  operators_.given_up = options_.given_up;
  operators_.go_on_to = completed_ + (options_.evaluate_first.has_value() ? 0 : 1);
}

bool RegularEvaluationDue(const RunPlan& run, Round round, uint32_t stop_after) {
  const uint32_t every = run.evaluation.every;
  const uint32_t last = stop_after > 0 ? stop_after : run.rounds;
  return round.value == last || (every > 0 && round.value % every == 0);
}

// ---- rounds

void RoundEngine::Begin(TimePoint now) {
  deadline_ = TimePoint::max();
  if (options_.data_digest.has_value() && *options_.data_digest != roster_.data_digest()) {
    return Fail(absl::FailedPreconditionError(
        "the workers' data (files, partition or seed) differs from what the checkpoint was trained "
        "on"));
  }
  if (const absl::Status asked = CheckAtBegin(options_.run.evaluation, roster_, completed_ > 0);
      !asked.ok())
    return Fail(asked);
  const absl::StatusOr<NamedGroups> groups = NamedGroups::Parse(options_.run.evaluation.groups);
  if (!groups.ok()) return Fail(groups.status());
  if (const std::string idle =
          roster_.Begin(options_.run.cohort.eligible, *groups, options_.numbering);
      !idle.empty())
    Logger("server").Warning(absl::StrCat("patterns_without_clients ", idle));
  // Of a simulation they are refused before the run (cli/config/drawable.h).
  for (const std::string& name : EmptyGroups(*groups, roster_)) {
    Logger("server").Warning(absl::StrCat("group_without_test_rows name=", name,
                                          ": its columns of evaluation.groups are null"));
  }
  absl::StatusOr<Draw> draw =
      Draw::Make(options_.run, roster_, options_.presence.get(), options_.passes.joins());
  if (!draw.ok()) return Fail(draw.status());
  const absl::StatusOr<std::string> warning =
      CompareTotals(options_.run, options_.totals, *draw, roster_);
  if (!warning.ok()) return Fail(warning.status());
  if (!warning->empty()) Logger("server").Warning(absl::StrCat("totals_differ ", *warning));
  draw_ = *std::move(draw);
  if (options_.check_rows) {
    if (const absl::Status status = options_.check_rows(draw_->drawable_rows()); !status.ok())
      return Fail(status);
  }
  if (const absl::Status status = LoadFeedback(); !status.ok()) return Fail(status);
  if (const std::string bounded = draw_->BoundedWeights(); !bounded.empty())
    Logger("server").Warning(absl::StrCat("weights_bounded ", bounded));
  if (options_.round.present_within > 0) {
    if (const absl::Status status = draw_->CheckCanChange(); !status.ok()) return Fail(status);
  }
  NoteAbsentAtBegin(now);
  LoseStatesBefore();
  for (const auto& [id, node] : nodes_) {
    if (node.volatile_state && node.empty_store)
      LoseStates(node.holding, node.name, "its store is new");
  }
  if (options_.evaluate_first.has_value())
    OpenEvaluation(Round(completed_), *options_.evaluate_first, options_.evaluate_first_without,
                   now);
  if (state_ == State::kEnded || ending_.has_value()) return;
  if (evaluation_.open() && options_.evaluation_gates) {
    state_ = State::kDraining;
    Advance(now);
  } else {
    NextRound(now);
  }
  ServeParked(now);  // nodes that have asked before the last one registered
}

void RoundEngine::NextRound(TimePoint now) {
  const bool paused =
      completed_ < LastRound() && caught_up() && (operators_.drain || operators_.pause);
  if (paused || WaitsToGoOn()) {
    state_ = State::kDraining;  // an evaluation may go on
    if (paused && operators_.drain) return EndDrained();
    if (!operators_.held.has_value()) operators_.held = now;
    return;
  }
  if (completed_ < LastRound()) return OpenRound(Round(completed_ + 1), now);
  state_ = State::kDraining;
  // A resumed run has nothing left to do if the earlier server died after the last evaluation.
  if (!evaluation_.open()) return FinishRounds(now);
  Advance(now);
}

void RoundEngine::OpenRound(Round round, TimePoint now) {
  std::optional<std::vector<ClientId>> present = PresentFor(round, now);
  if (!present.has_value()) {
    state_ = State::kWaiting;
    return;
  }
  // Of a round that goes on with those that train, nobody new may be there.
  if (!live_ || present->empty() || draw_->Drawable(*present) > 0) {
    if (const absl::Status status = draw_->Among(*std::move(present)); !status.ok())
      return Fail(status);
  }
  absl::StatusOr<DrawnRound> drawn = DrawNext(round);
  if (!drawn.ok()) return Fail(drawn.status());
  troubles_.Clear();
  asked_ = std::move(drawn->asked);
  phase_.OpenRound(round, *std::move(drawn), now);
  RestoreTrainOn(now);
  Prepare();
}

absl::StatusOr<DrawnRound> RoundEngine::DrawNext(Round round) {
  if (!live_) return DrawRound(options_, *draw_, states_, round, clock_);
  if (const auto* before = restored_.Find(round, Phase(0)); before != nullptr)
    return DrawStepAgain(options_, *draw_, states_, round, *before);
  std::vector<Seat> train_on = phase_.TrainOn();
  if (!train_on_.empty()) {
    MACAW_ASSIGN_OR_RETURN(train_on, TrainOnAgain(options_, *draw_, states_, round, train_on_));
  }
  return DrawStep(options_, *draw_, states_, round, std::move(train_on));
}

absl::Status RoundEngine::LoadFeedback() {
  observed_ = Round(completed_);
  scheduler::Feedback* const feedback = draw_->feedback();
  if (feedback == nullptr || completed_ == 0) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(feedback->Load(options_.feedback, roster_.clients()));
  if (feedback->round() == observed_) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("what the checkpoint after round ", completed_,
                                          " knows of the clients is of round ",
                                          feedback->round().value));
}

void RoundEngine::ObserveRound() {
  if (!draw_.has_value() || draw_->feedback() == nullptr || observed_ == phase_.round()) return;
  observed_ = phase_.round();
  draw_->feedback()->Observe(observed_, facts_);
}

std::string RoundEngine::SnapshotFeedback(StateVersions::Staged staged) {
  if (staged == StateVersions::Staged::kIncluded) ObserveRound();
  if (!draw_.has_value()) return options_.feedback;
  return draw_->feedback() == nullptr ? "" : draw_->feedback()->Save();
}

std::optional<std::vector<ClientId>> RoundEngine::PresentFor(Round round, TimePoint now) {
  if (const auto* before = restored_.Find(round, Phase(0)); before != nullptr)
    return before->present;
  const auto decided = options_.decisions.find({round, Phase(0)});
  if (decided != options_.decisions.end()) return decided->second.present;
  const bool only_present = options_.round.present_within > 0;
  if (!only_present && !live_ && !nodes_.AnybodyDeclines()) return std::vector<ClientId>();
  std::vector<ClientId> present = Present(now);
  const uint64_t drawable = draw_->Drawable(present), needed = NeededToOpen();
  if (drawable < needed) {
    missing_clients_ = needed - drawable;
    if (std::exchange(said_waiting_, round) != round) {
      Record(log::Waiting{.round = round, .present = drawable, .needed = needed});
    }
    return std::nullopt;
  }
  if (!only_present && !live_) return std::vector<ClientId>();
  const bool everybody =
      present.size() == 2 && present[1].value - present[0].value == roster_.clients();
  return everybody ? std::vector<ClientId>() : present;
}

std::vector<ClientId> RoundEngine::Present(TimePoint now) {
  const bool any_time = options_.round.present_within <= 0;
  const bool everybody = any_time && !live_;  // a step draws clients whose nodes are there
  const TimePoint since = now - FromSeconds(options_.round.present_within);
  std::vector<bool> here(roster_.holdings(), everybody);
  ++presence_count_;
  for (auto& [id, node] : nodes_) {
    const bool heard = node.poll.has_value() || node.last_seen >= since || (any_time && live_);
    if (heard && node.declined.empty()) {
      here[node.holding.value] = true;
      node.present_in = presence_count_;
    }
    if (any_time && nodes_.Decline(node.holding)) here[node.holding.value] = false;
  }
  std::vector<ClientId> ranges;
  bool inside = false;
  for (ClientId client; client.value < roster_.clients(); ++client.value) {
    if (here[roster_.HoldingOf(client).value] == inside) continue;
    ranges.push_back(client);
    inside = !inside;
  }
  if (inside) ranges.push_back(ClientId(roster_.clients()));
  return ranges;
}

void RoundEngine::OnHeard(Node& node, TimePoint now) {
  if (state_ != State::kWaiting) return;
  if (node.declined.empty() && std::exchange(node.present_in, presence_count_) != presence_count_) {
    missing_clients_ -= std::min(missing_clients_, roster_.clients_of(node.holding));
  }
  Retry(now);
}

void RoundEngine::Prepare() {
  state_ = State::kPreparing;
  ForgetAtOpening();
  staged_before_phase_ = states_.versions().staged().size();
  effects_.orders.emplace_back(PrepareBroadcast{.order = phase_.order()});
}

Effects RoundEngine::BroadcastReady(Round round, Phase phase, absl::StatusOr<PhaseModels> models,
                                    TimePoint now) {
  if (state_ == State::kPreparing && round == phase_.round() && phase == phase_.phase())
    StartPhase(std::move(models), now);
  return Take();
}

void RoundEngine::StartPhase(absl::StatusOr<PhaseModels> models, TimePoint now) {
  if (!models.ok()) return Fail(models.status());
  const Round round = phase_.round();
  const Phase phase = phase_.phase();
  log::RoundOpened opened = phase_.Ready(*std::move(models), draw_->eligible(), now);
  if (phase == Phase(0)) opened.present = draw_->present();
  if (const auto* before = restored_.Find(round, phase); before != nullptr) {
    RestorePhase(*before, now);
    if (state_ == State::kEnded) return;
    if (before->closed) {
      phase_.DoneAgain();
    } else {
      restored_.Pass(round, phase);
      LoseStatesOwed();
    }
  } else {
    Record(std::move(opened));
    for (log::Leased& leased : phase_.TakenOver()) Record(log::Record(std::move(leased)));
    const auto decided = options_.decisions.find({round, phase});
    if (decided != options_.decisions.end()) {
      Record(phase_.DoWithout(decided->second.given_up));
      if (decided->second.dropped) DropRound("as in the run that is repeated");
    }
  }
  PlanQueues();
  SetDeadline(now);
  state_ = State::kRunning;
  GiveUpDeclined();
  GiveUpAbandoned();
  if (live_) GiveUpGoneClients({absence_.gone().begin(), absence_.gone().end()});
  // Only now can the engine say which of the nodes that called early must commit first.
  if (caught_up() && std::exchange(parked_early_, false))
    ServeEach({nodes_.parked().begin(), nodes_.parked().end()}, now);
  ServeParked(now);
  Advance(now);
}

// Plans the clients of each holding on the nodes that have it, independently of other holdings.
void RoundEngine::PlanQueues() {
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  for (uint32_t i = 0; i < waiting.size(); ++i) {
    if (!waiting[i].entries.empty()) PlanQueue(HoldingId(i), waiting[i], !redoing());
  }
}

void RoundEngine::PlanQueue(HoldingId holding, const scheduler::Cohort& waiting, bool news) {
  const scheduler::Estimator& speeds = speeds_.Of(phase_.phase());
  std::vector<scheduler::WorkerInfo> workers;
  for (const WorkerId id : nodes_.Of(holding).members) {
    if (!nodes_.At(id).declined.empty()) continue;
    workers.push_back({.worker = id, .slots = nodes_.At(id).slots, .costs = speeds.CostsOf(id)});
  }
  const scheduler::Plan plan = scheduler_.Assign(waiting, workers);
  // An owner's clients can only go to the owner, so their plan is not worth a record.
  if (news && roster_.owner_of(holding).empty()) {
    Record(log::Planned{.round = phase_.round(), .phase = phase_.phase(), .why = plan.reason});
  }
  scheduler::DispatchQueue queue(plan);
  // If no node has the holding now, put the clients into the queue's common end. Any node of the
  // holding that joins later takes them from there.
  for (size_t i = 0; workers.empty() && i < waiting.entries.size(); ++i)
    queue.PutBack(waiting.entries[i]);
  phase_.Plan(holding, std::move(queue));
}

Effects RoundEngine::Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
                             TimePoint now, std::vector<ModelWithout> without) {
  if (state_ == State::kClosing)
    MoveOn(std::move(another_phase), std::move(model), std::move(without), now);
  return Take();
}

void RoundEngine::MoveOn(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
                         std::vector<ModelWithout> without, TimePoint now) {
  speeds_.Of(phase_.phase()).EndRound();
  const Round round = phase_.round();
  if (!another_phase.ok()) {
    return Fail(Annotate(another_phase.status(), absl::StrCat("round ", round.value)));
  }
  restored_.Pass(round, phase_.phase());
  if (*another_phase && !interrupt_) {
    LoseStatesOwed();
    phase_.OpenNext(states_.versions().staged(), now);
    return Prepare();
  }
  if (!*another_phase) {
    ObserveRound();
    completed_ = round.value;
    const Lost lost = std::exchange(round_lost_, Lost::kNo);
    if (lost != Lost::kByOneNode) lost_rounds_ = lost == Lost::kYes ? lost_rounds_ + 1 : 0;
    if (std::exchange(begins_anew_, false)) {
      states_.versions().CloseAndForgetAll(round);
    } else {
      states_.versions().Close(round);
    }
    clock_ = phase_.clock();
    LoseStatesOwed();
  }
  if (interrupt_) return End(RunEnd::kInterrupted, absl::OkStatus(), "");
  state_ = State::kDraining;
  if (model.has_value()) OpenEvaluation(round, *std::move(model), std::move(without), now);
  if (state_ == State::kEnded || ending_.has_value()) return;
  if (evaluation_.open() && options_.evaluation_gates) {
    ServeParked(now);
    return Advance(now);
  }
  NextRound(now);
  ServeParked(now);
}

// ---- the end

void RoundEngine::FinishRounds(TimePoint now) {
  const bool all = completed_ >= options_.run.rounds;
  Finish(all ? RunEnd::kFinished : RunEnd::kStopped, all ? "" : options_.stop_reason, now);
}

void RoundEngine::Finish(RunEnd end, std::string reason, TimePoint now) {
  if (!states_.keeps()) return End(end, absl::OkStatus(), std::move(reason));
  state_ = State::kDraining;
  ending_ = {.end = end, .reason = std::move(reason)};
  const log::LostStates::At* lost = StatesLostAt(Round(completed_ + 1), Phase(0));
  if (lost != nullptr) {
    states_.versions().ForgetCurrent(lost->before);
    begins_anew_ = begins_anew_ || lost->all;
  }
  BeginEvaluation(EvaluationBoard::OfStates(Round(completed_), states_.versions().index(), roster_),
                  now);
  ServeParked(now);
  Advance(now);
}

Effects RoundEngine::Interrupt() {
  interrupt_ = true;
  // A phase that is being applied is completed first.
  if (state_ != State::kClosing) End(RunEnd::kInterrupted, absl::OkStatus(), "");
  return Take();
}

Effects RoundEngine::Abort(absl::Status why) {
  Fail(std::move(why));
  return Take();
}

void RoundEngine::End(RunEnd end, absl::Status status, std::string reason) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  while (!nodes_.parked().empty()) {
    Node& node = nodes_.At(*nodes_.parked().begin());
    nodes_.SetTold(node);
    Answer(nodes_.Unpark(node, node.last_seen).ticket,
           fleet::LeaseReply{.next = fleet::Next::kFinished});
  }
  effects_.orders.emplace_back(
      EndRun{end, std::move(status), std::move(reason), operators_.stopped});
}

// ---- time

Effects RoundEngine::Tick(TimePoint now) {
  PassTime(now);
  return Take();
}

void RoundEngine::PassTime(TimePoint now) {
  const Nodes::Elapsed elapsed = nodes_.Expire(now);
  for (const Ticket ticket : elapsed.polls)
    Answer(ticket, fleet::LeaseReply{.next = fleet::Next::kWait});
  for (const WorkerId id : elapsed.silent)
    Lose(id, "nothing was heard of it for a lease's time", now);
  std::vector<AttemptTable::Late> late;
  Record(phase_.Expire(now, late));
  const bool tasks_back = evaluation_.Expire(now);
  if (state_ == State::kEnded) return;
  GiveUpGone(absence_.Expire(now, nodes_.size() > 0));
  PassEvaluationDeadline(now);
  PassDeadline(now);
  Retry(now);
  std::map<WorkerId, std::vector<ClientId>> of_node;
  for (const AttemptTable::Late& one : late) of_node[one.worker].push_back(one.attempt.client);
  for (const auto& [id, clients] : of_node) OnLate(id, clients, now);
  for (const WorkerId id : elapsed.look_again) {
    if (!nodes_.Knows(id)) continue;
    ServeParked(nodes_.At(id), now);
    if (nodes_.Knows(id)) DismissParked(nodes_.At(id).holding, now);
  }
  if (tasks_back) ServeParked(now);
  Advance(now);
}

// Its clients are queued again. If it waits for more work, it must commit the rest first.
void RoundEngine::OnLate(WorkerId id, const std::vector<ClientId>& clients, TimePoint now) {
  if (!nodes_.Knows(id)) return ServeParked(now);
  Node& node = nodes_.At(id);
  node.on_trial = true;
  for (const ClientId client : clients) troubles_.RanOut(node.name, client, now + LeastLease());
  phase_.RemoveFromPlan(node);
  ServeParked(node, now);
  ServeHolding(node.holding, now);
}

TimePoint RoundEngine::NextDeadline() const {
  return std::min({phase_.NextExpiry(), evaluation_.NextExpiry(), nodes_.NextDeadline(),
                   absence_.NextDeadline(), deadline_,
                   evaluation_.running() ? evaluation_deadline_ : TimePoint::max()});
}

bool RoundEngine::ReadyToBegin() const {
  const bool complete = options_.run.clients == 0 || roster_.clients() == options_.run.clients;
  // Owners that are given up count as if they were there.
  const bool enough = gathered_ || nodes_.size() + operators_.given_up.size() >= options_.workers;
  return state_ == State::kGathering && nodes_.size() > 0 && enough && complete && awaited_.empty();
}

}  // namespace macaw::server
