// What operators ask for.
#include <algorithm>
#include <utility>

#include "core/spelling.h"
#include "core/status.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using admin::Action;

}  // namespace

Answered<absl::StatusOr<std::string>> RoundEngine::Operate(const admin::Change& change,
                                                           TimePoint now) {
  absl::StatusOr<std::string> said = Change(change, now);
  return {.answer = std::move(said), .effects = Take()};
}

absl::StatusOr<std::string> RoundEngine::Change(const admin::Change& change, TimePoint now) {
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
    case Action::kGiveUp:
      return GiveUp(change, now);
    case Action::kSkipEvaluation:
      return SkipEvaluation(change, now);
  }
  return absl::InvalidArgumentError("no such change");
}

void RoundEngine::RecordOperation(const admin::Change& change) {
  Record(log::Operated{.action = static_cast<log::Operation>(change.action),
                       .by = change.by,
                       .name = change.node,
                       .round = Round(change.round),
                       .why = change.reason});
}

absl::StatusOr<std::string> RoundEngine::Pause(const admin::Change& change) {
  if (completed_ >= LastRound() || ending_.has_value())
    return absl::FailedPreconditionError("the rounds are done, so there is nothing to pause");
  if (!std::exchange(operators_.pause, true)) RecordOperation(change);
  missing_clients_ = 0;  // the round that waits for clients is not opened at all
  const bool open = phase_.round().value > completed_;
  return operators_.held.has_value() ? "the run is paused"
         : open ? absl::StrCat("the run pauses after round ", phase_.round().value)
                : "the run pauses before its next round";
}

absl::StatusOr<std::string> RoundEngine::GoOn(const admin::Change& change, TimePoint now) {
  if (!std::exchange(operators_.pause, false)) return "the run was not paused";
  RecordOperation(change);
  if (std::exchange(operators_.held, std::nullopt).has_value()) {
    NextRound(now);
    ServeParked(now);
  }
  return "the run goes on";
}

Effects RoundEngine::GoOnTo(Round round, TimePoint now) {
  if (state_ == State::kEnded || ending_.has_value()) return {};
  operators_.go_on_to = std::max(operators_.go_on_to, round.value);
  if (WaitsToGoOn() || operators_.pause || !operators_.held.has_value()) return {};
  operators_.held.reset();
  NextRound(now);
  ServeParked(now);
  return Take();
}

Effects RoundEngine::StopHere(std::string reason, TimePoint now) {
  if (state_ == State::kEnded || ending_.has_value() || !operators_.held.has_value()) return {};
  operators_.held.reset();
  operators_.stopped = true;
  Finish(RunEnd::kStopped, std::move(reason), now);
  return Take();
}

absl::StatusOr<std::string> RoundEngine::Drain(const admin::Change& change) {
  if (!std::exchange(operators_.drain, true)) RecordOperation(change);
  operators_.drained_by = change.by;
  if (state_ == State::kGathering || state_ == State::kWaiting || operators_.held.has_value()) {
    EndDrained();
    return "the run ends now; it can be resumed";
  }
  EndDrainedInVain();
  if (state_ == State::kEnded) return "the run ends now; it can be resumed";
  if (completed_ >= LastRound() || ending_.has_value())
    return "the rounds are done; the run ends after its evaluation";
  return absl::StrCat("the run ends after round ", phase_.round().value, "; it can be resumed");
}

void RoundEngine::EndDrained(const std::string& why) {
  End(RunEnd::kInterrupted, absl::OkStatus(),
      absl::StrCat("drained by ", operators_.drained_by, why));
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
  if (!std::exchange(operators_.abort, true)) RecordOperation(change);
  BeginPhaseAgain(now);
  return absl::StrCat("round ", change.round, " begins again; ", standing.counted,
                      " clients had been counted, ", standing.leased, " were leased");
}

void RoundEngine::BeginPhaseAgain(TimePoint now) {
  // PartAdded comes here again.
  if (state_ == State::kEnded || !operators_.abort || phase_.adding()) return;
  operators_.abort = false;
  deadline_ = TimePoint::max();
  states_.versions().Unstage(staged_before_phase_);
  troubles_.Clear();
  phase_.Reopen(now);
  Prepare();
}

absl::StatusOr<std::string> RoundEngine::Quarantine(const admin::Change& change, TimePoint now) {
  if (change.node.empty()) return absl::InvalidArgumentError("which node? its name is missing");
  const Node* node = nodes_.Named(change.node);
  const bool shared = node != nullptr && roster_.owner_of(node->holding).empty();
  if (shared && node->volatile_state && states_.versions().any()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", change.node,
        "\" keeps the states of all clients in its memory: without it the run could not go on"));
  }
  operators_.quarantine[change.node] = {
      .node = change.node, .by = change.by, .reason = change.reason};
  RecordOperation(change);
  if (node == nullptr)
    return absl::StrCat("\"", change.node, "\" is not there; it will be refused when it comes");
  const uint64_t leased = phase_.leased_to(node->id);
  Lose(node->id,
       absl::StrCat("put into quarantine by ", change.by, change.reason.empty() ? "" : ": ",
                    change.reason),
       now);
  Advance(now);
  return absl::StrCat("\"", change.node, "\" is in quarantine; ", Counted(leased, "client"),
                      shared ? (leased == 1 ? " goes to others" : " go to others")
                             : (leased == 1 ? " waits for it" : " wait for it"));
}

absl::StatusOr<std::string> RoundEngine::Admit(const admin::Change& change) {
  if (operators_.quarantine.erase(change.node) == 0) {
    return absl::NotFoundError(absl::StrCat("\"", change.node, "\" is not in quarantine"));
  }
  RecordOperation(change);
  return absl::StrCat("\"", change.node, "\" may come back");
}

absl::StatusOr<std::string> RoundEngine::GiveUp(const admin::Change& change, TimePoint now) {
  if (change.node.empty()) return absl::InvalidArgumentError("which node? its name is missing");
  if (nodes_.Named(change.node) != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", change.node,
        "\" is there: put it into quarantine first, or revoke its certificate and wait until it has "
        "been silent for ",
        ToSeconds(options_.lease_timeout), " s"));
  }
  uint64_t clients = 0;
  for (HoldingId holding; holding.value < roster_.holdings(); ++holding.value) {
    if (roster_.owner_of(holding) != change.node) continue;
    clients += roster_.clients_of(holding);
    awaited_.erase(holding);
  }
  if (clients == 0) {
    return absl::NotFoundError(absl::StrCat(
        "no clients are known that \"", change.node,
        "\" owns; for an evaluation that waits for a node there is `macaw admin skip-evaluation`"));
  }
  if (operators_.given_up.emplace(change.node, change.by).second) RecordOperation(change);
  GiveUpAbandoned();
  if (ReadyToBegin()) Begin(now);
  Advance(now);
  return absl::StrCat("nothing waits for \"", change.node, "\" and its ",
                      Counted(clients, "client"), " until it registers again");
}

absl::StatusOr<std::string> RoundEngine::SkipEvaluation(const admin::Change& change,
                                                        TimePoint now) {
  if (!evaluation_.running()) return absl::FailedPreconditionError("no evaluation is open");
  const Round round = evaluation_.board().round();
  if (change.round != round.value) {
    return absl::FailedPreconditionError(absl::StrCat("the model after round ", round.value,
                                                      " is evaluated, not that after round ",
                                                      change.round));
  }
  RecordOperation(change);
  const std::vector<uint64_t> tasks = AllTasks();
  GiveUpTasks(tasks, fleet::LeftOutReason::kNotNeeded, absl::StrCat("skipped by ", change.by));
  Advance(now);
  return absl::StrCat("the evaluation after round ", round.value, " ends without ",
                      Counted(tasks.size(), "task"));
}

absl::Status RoundEngine::CheckQuarantine(const std::string& name) const {
  const auto found = operators_.quarantine.find(name);
  if (found == operators_.quarantine.end()) return absl::OkStatus();
  // The caller tries again later (unavailable): it may be admitted.
  return absl::UnavailableError(absl::StrCat(
      "worker \"", name, "\" is in quarantine",
      found->second.reason.empty() ? "" : absl::StrCat(" (", found->second.reason, ")"),
      ", until an operator admits it"));
}

}  // namespace macaw::server
