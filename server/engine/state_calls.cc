// What the engine decides about client states beyond which version is current: which stores a run
// can live with, what a state that cannot be read means, and the digest over all of them.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

absl::Status Unreadable(ClientId client, const std::string& why) {
  return absl::DataLossError(absl::StrCat(
      "the state of client ", client.value, " cannot be read: ", why,
      ". The run stops rather than start the client afresh. Restore the store and resume; or "
      "remove "
      "the newest checkpoint to go back to an older state; or give this state up with --resume "
      "DIR --state-reset ",
      client.value));
}

}  // namespace

absl::Status RoundEngine::CheckStateStore(const fleet::RegisterRequest& request) const {
  if (!options_.stateful) return absl::OkStatus();
  const std::optional<HoldingId> holding = roster_.Find(request.data_digest);
  const auto alone = [&](const auto& entry) {
    const Worker& other = entry.second;
    return other.name == request.name || other.holding != holding ||
           !(other.volatile_state || request.volatile_state);
  };
  if (request.volatile_state && !options_.versions.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker \"", request.name,
        "\" keeps client states in memory, and those of the rounds "
        "before were kept elsewhere: a resumed run needs the store that it began with"));
  }
  if (!std::all_of(workers_.begin(), workers_.end(), alone)) {
    return absl::FailedPreconditionError(
        "client states that are kept in a worker's memory allow no second worker: set "
        "workers.processes = 1, or state.store = \"disk\"");
  }
  return absl::OkStatus();
}

bool RoundEngine::FailOverState(const std::vector<fleet::LeftOut>& left_out) {
  for (const fleet::LeftOut& left : left_out) {
    if (left.reason != fleet::LeftOutReason::kState) continue;
    Fail(Unreadable(left.attempt.client, left.message));
    return true;
  }
  return false;
}

bool RoundEngine::FailOverState(WorkerId worker,
                                const std::vector<fleet::EvaluationResult>& evaluations) {
  for (const fleet::EvaluationResult& result : evaluations) {
    // A worker that was late may well not find a version that was replaced meanwhile.
    if (result.failure.empty() || !evaluation_open_ || evaluation_.Find(worker, result) == nullptr)
      continue;
    Fail(result.task.kind == fleet::EvaluationKind::kStateDigest
             ? absl::DataLossError(result.failure)
             : Unreadable(result.task.client, result.failure));
    return true;
  }
  return false;
}

void RoundEngine::ReportStates() {
  for (scheduler::CohortEntry& entry : cohort_.entries) {
    entry.has_state = versions_.Current(entry.client).counter > 0;
    if (entry.has_state) entry.state_at = versions_.MadeBy(entry.client);
  }
}

void RoundEngine::Finish(RunEnd end, std::string reason, TimePoint now) {
  if (!options_.stateful) return End(end, absl::OkStatus(), std::move(reason));
  state_ = State::kDraining;
  finishing_ = {end, std::move(reason)};
  evaluation_ = EvaluationBoard::OfStates(Round(completed_), versions_.index(), roster_);
  evaluation_open_ = true;
  ServeParked(now);
  Advance(now);
}

}  // namespace macaw::server
