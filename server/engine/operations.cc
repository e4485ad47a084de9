// What operators ask for, and what they see.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using admin::Action;
using admin::RunState;
using admin::Step;

std::string Doing(const admin::NodeStatus& node, uint64_t tasks) {
  if (node.leased > 0)
    return absl::StrCat("trains ", node.leased, node.leased == 1 ? " client" : " clients");
  if (tasks > 0) return "evaluates";
  return node.waits ? "waits for work" : "between two calls";
}

}  // namespace

absl::StatusOr<std::string> RoundEngine::Operate(const admin::Change& change, TimePoint now) {
  if (state_ == State::kEnded) return absl::FailedPreconditionError("the run has ended");
  switch (change.action) {
    case Action::kPause:
      return Pause(change);
    case Action::kResume:
      return GoOn(change, now);
    case Action::kDrain:
      return Drain(change);
    case Action::kAbortRound:
      return AbortRound(change, now);
    case Action::kQuarantine:
      return Quarantine(change, now);
    case Action::kAdmit:
      return Admit(change);
  }
  return absl::InvalidArgumentError("no such change");
}

void RoundEngine::RecordOperation(const admin::Change& change) {
  host_.Record(log::Operated{.action = static_cast<log::Operation>(change.action),
                             .by = change.by,
                             .name = change.node,
                             .round = Round(change.round),
                             .why = change.reason});
}

absl::StatusOr<std::string> RoundEngine::Pause(const admin::Change& change) {
  if (completed_ >= LastRound() || ending_.has_value())
    return absl::FailedPreconditionError("the rounds are done, so there is nothing to pause");
  if (!std::exchange(orders_.pause, true)) RecordOperation(change);
  const bool open = phase_.round().value > completed_;
  return orders_.held.has_value() ? "the run is paused"
         : open ? absl::StrCat("the run pauses after round ", phase_.round().value)
                : "the run pauses before its next round";
}

absl::StatusOr<std::string> RoundEngine::GoOn(const admin::Change& change, TimePoint now) {
  if (!std::exchange(orders_.pause, false)) return "the run was not paused";
  RecordOperation(change);
  if (std::exchange(orders_.held, std::nullopt).has_value()) {
    NextRound(now);
    ServeParked(now);
  }
  return "the run goes on";
}

void RoundEngine::GoOnTo(Round round, TimePoint now) {
  if (state_ == State::kEnded || ending_.has_value()) return;
  orders_.go_on_to = std::max(orders_.go_on_to, round.value);
  if (WaitsToGoOn() || orders_.pause || !orders_.held.has_value()) return;
  orders_.held.reset();
  NextRound(now);
  ServeParked(now);
}

void RoundEngine::StopHere(std::string reason, TimePoint now) {
  if (state_ == State::kEnded || ending_.has_value() || !orders_.held.has_value()) return;
  orders_.held.reset();
  Finish(RunEnd::kStopped, std::move(reason), now);
}

absl::StatusOr<std::string> RoundEngine::Drain(const admin::Change& change) {
  if (!std::exchange(orders_.drain, true)) RecordOperation(change);
  orders_.drained_by = change.by;
  if (state_ == State::kGathering || state_ == State::kWaiting || orders_.held.has_value()) {
    EndDrained();
    return "the run ends now; it can be resumed";
  }
  if (completed_ >= LastRound() || ending_.has_value())
    return "the rounds are done; the run ends after its evaluation";
  return absl::StrCat("the run ends after round ", phase_.round().value, "; it can be resumed");
}

void RoundEngine::EndDrained() {
  End(RunEnd::kInterrupted, absl::OkStatus(), absl::StrCat("drained by ", orders_.drained_by));
}

absl::StatusOr<std::string> RoundEngine::AbortRound(const admin::Change& change, TimePoint now) {
  if (!caught_up())
    return absl::UnavailableError("the server is doing earlier rounds again: repeat the call");
  const bool open = phase_.round().value > completed_;
  if (!open || state_ == State::kGathering || state_ == State::kDraining)
    return absl::FailedPreconditionError("no round is open");
  if (change.round != phase_.round().value) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", phase_.round().value, " is open, not round ", change.round));
  }
  if (state_ == State::kClosing) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", change.round, " has all its clients and is being closed"));
  }
  if (state_ == State::kPreparing) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", change.round, " has just begun, and nothing of it is leased yet"));
  }
  if (phase_.dropped()) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", change.round, " has been dropped and is being closed"));
  }
  const Standing standing = phase_.standing();
  if (!std::exchange(orders_.abort, true)) RecordOperation(change);
  BeginPhaseAgain(now);
  return absl::StrCat("round ", change.round, " begins again; ", standing.counted,
                      " clients had been counted, ", standing.leased, " were leased");
}

void RoundEngine::BeginPhaseAgain(TimePoint now) {
  if (!orders_.abort || phase_.adding()) return;  // PartAdded comes here again
  orders_.abort = false;
  deadline_ = TimePoint::max();
  states_.versions().Unstage(staged_before_phase_);
  troubles_.Clear();
  phase_.Reopen(now);
  Prepare();
}

absl::StatusOr<std::string> RoundEngine::Quarantine(const admin::Change& change, TimePoint now) {
  if (change.node.empty()) return absl::InvalidArgumentError("which node? its name is missing");
  const Node* node = nodes_.Named(change.node);
  if (node != nullptr && node->volatile_state && states_.versions().any()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", change.node,
        "\" keeps the clients' states in its memory: without it the run could not go on"));
  }
  orders_.quarantine[change.node] = {.node = change.node, .by = change.by, .reason = change.reason};
  RecordOperation(change);
  if (node == nullptr)
    return absl::StrCat("\"", change.node, "\" is not there; it will be refused when it comes");
  const uint64_t leased = phase_.leased_to(node->id);
  Lose(node->id,
       absl::StrCat("put into quarantine by ", change.by, change.reason.empty() ? "" : ": ",
                    change.reason),
       now);
  return absl::StrCat("\"", change.node, "\" is in quarantine; ", leased,
                      leased == 1 ? " client goes" : " clients go", " to others");
}

absl::StatusOr<std::string> RoundEngine::Admit(const admin::Change& change) {
  if (orders_.quarantine.erase(change.node) == 0) {
    return absl::NotFoundError(absl::StrCat("\"", change.node, "\" is not in quarantine"));
  }
  RecordOperation(change);
  return absl::StrCat("\"", change.node, "\" may come back");
}

absl::Status RoundEngine::CheckQuarantine(const std::string& name) const {
  const auto found = orders_.quarantine.find(name);
  if (found == orders_.quarantine.end()) return absl::OkStatus();
  // The caller tries again later (unavailable): it may be admitted.
  return absl::UnavailableError(absl::StrCat(
      "worker \"", name, "\" is in quarantine",
      found->second.reason.empty() ? "" : absl::StrCat(" (", found->second.reason, ")"),
      ", until an operator admits it"));
}

// ---- what they see

admin::RunState RoundEngine::RunStateNow() const {
  if (state_ == State::kEnded) return RunState::kEnded;
  if (completed_ >= LastRound() || ending_.has_value()) return RunState::kEnding;
  if (orders_.drain) return RunState::kDraining;
  if (orders_.held.has_value()) return RunState::kPaused;
  if (orders_.pause) return RunState::kPausing;
  return state_ == State::kGathering ? RunState::kWaiting : RunState::kRunning;
}

admin::Step RoundEngine::StepNow() const {
  switch (state_) {
    case State::kGathering:
      return Step::kGathering;
    case State::kWaiting:
      return Step::kAwaiting;
    case State::kPreparing:
      return Step::kPreparing;
    case State::kRunning:
      return Step::kTraining;
    case State::kClosing:
      return Step::kApplying;
    case State::kDraining:
      return evaluation_.open() ? Step::kEvaluating : Step::kIdle;
    case State::kEnded:
      break;
  }
  return Step::kIdle;
}

void RoundEngine::Describe(admin::RunStatus& status, TimePoint now) const {
  status.state = RunStateNow();
  status.step = StepNow();
  status.epoch = options_.epoch;
  status.round = phase_.round().value;
  status.phase = phase_.phase().value;
  status.rounds = LastRound();
  status.completed = completed_;
  status.lease_seconds = ToSeconds(options_.lease_timeout);
  const PhaseTimes& times = phase_.report().times;
  if (orders_.held.has_value()) status.step_seconds = ToSeconds(now - *orders_.held);
  if (status.step == Step::kPreparing) status.step_seconds = ToSeconds(now - times.opened);
  if (status.step == Step::kTraining) {
    status.step_seconds = ToSeconds(now - times.ready);
    const Standing standing = phase_.standing();
    status.cohort = standing.cohort;
    status.waiting = standing.waiting;
    status.leased = standing.leased;
    status.counted = standing.counted;
    status.given_up = standing.given_up;
    status.requeued = phase_.report().requeued;
    DescribeMissing(status);
  }
  const Evaluation::Progress evaluation = evaluation_.progress();
  status.evaluated_round = evaluation.round.value;
  status.evaluation_tasks = evaluation.tasks;
  status.evaluation_done = evaluation.done;
  status.nodes_wanted = options_.workers;
  status.clients_wanted = options_.run.clients;
  status.clients_known = roster_.clients();
  for (const auto& [name, one] : orders_.quarantine) status.quarantine.push_back(one);
  DescribeNodes(status, now);
}

void RoundEngine::DescribeMissing(admin::RunStatus& status) const {
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  for (uint32_t i = 0; i < waiting.size(); ++i) {
    const HoldingId holding(i);
    if (waiting[i].entries.empty() || !nodes_.Of(holding).members.empty()) continue;
    status.missing.push_back(
        {.owner = roster_.owner_of(holding), .clients = waiting[i].entries.size()});
  }
}

void RoundEngine::DescribeNodes(admin::RunStatus& status, TimePoint now) const {
  const absl::flat_hash_map<WorkerId, uint64_t> evaluating = evaluation_.Held();
  for (const auto& [id, node] : nodes_) {
    admin::NodeStatus one{.name = node.name,
                          .slots = node.slots,
                          .clients = roster_.clients_of(node.holding),
                          .owner = !roster_.owner_of(node.holding).empty(),
                          .waits = node.poll.has_value(),
                          .on_trial = node.on_trial,
                          .silent_seconds = ToSeconds(now - node.heard),
                          .leased = phase_.leased_to(id)};
    const auto tasks = evaluating.find(id);
    one.doing = node.declined.empty() ? Doing(one, tasks == evaluating.end() ? 0 : tasks->second)
                                      : absl::StrCat("declines: ", node.declined);
    status.nodes.push_back(std::move(one));
  }
}

}  // namespace macaw::server
