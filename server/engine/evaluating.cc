// The evaluation of models beside the rounds, and the digests of client states at the end of a run.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"
#include "training/api/class_counts.h"

namespace macaw::server {

void RoundEngine::OpenEvaluation(Round round, fleet::Blob model) {
  if (restored_.Evaluated(round)) {
    evaluation_.OpenComplete(round);
    effects_.orders.emplace_back(JudgeEvaluation{.round = round});
    return;
  }
  evaluation_.Open(
      EvaluationBoard(round, std::move(model), options_.run.evaluation, options_.personal_models,
                      roster_, options_.run.seed, training::ClassCountsOf(options_.run), hostile_,
                      ConceptGroups(options_.run.transform, options_.run.seed).count()));
  GiveUpDeclined();
}

void RoundEngine::OnEvaluationComplete() {
  if (!ending_.has_value()) {
    const Round round = evaluation_.progress().round;
    effects_.orders.emplace_back(JudgeEvaluation{.round = round, .sums = evaluation_.Report()});
    return;
  }
  const EvaluationSums sums = evaluation_.Report();
  if (sums.given_up.empty())
    state_digest_ = fleet::CombineStateDigests(states_.versions().index().size(), sums.states);
  evaluation_.Close();
  End(ending_->end, absl::OkStatus(), ending_->reason);
}

Effects RoundEngine::EvaluationJudged(Round round, const std::optional<std::string>& stop,
                                      TimePoint now) {
  if (state_ != State::kEnded && evaluation_.judging() && evaluation_.progress().round == round)
    AfterEvaluation(round, stop, now);
  return Take();
}

void RoundEngine::AfterEvaluation(Round round, const std::optional<std::string>& stop,
                                  TimePoint now) {
  evaluation_.Close();
  if (!restored_.Evaluated(round))  // else the log has the record
    Record(log::Evaluated{.round = round, .stop = stop.value_or("")});
  if (state_ != State::kDraining) return Advance(now);
  if (stop.has_value()) return Finish(RunEnd::kStopped, *stop, now);
  NextRound(now);
}

absl::Status RoundEngine::CheckEvaluations(
    const Node& node, const std::vector<fleet::EvaluationResult>& results) const {
  for (const fleet::EvaluationResult& result : results) {
    const fleet::EvaluationTask* task = evaluation_.Find(node.id, result);
    if (task == nullptr) continue;  // the result is late and does not count
    MACAW_RETURN_IF_ERROR(CheckEvaluation(options_.run, states_.keeps(), *task, result));
  }
  return absl::OkStatus();
}

void RoundEngine::TakeEvaluations(const Node& node,
                                  const std::vector<fleet::EvaluationResult>& results) {
  for (const fleet::EvaluationResult& result : results) {
    const fleet::EvaluationTask* task = evaluation_.Find(node.id, result);
    if (task == nullptr) continue;  // late; the state version may have been replaced meanwhile
    if (result.failure.empty()) {
      evaluation_.Complete(node.id, result);
      continue;
    }
    const bool digest = task->kind == fleet::EvaluationKind::kStateDigest;
    const ClientId client = digest ? task->states.front().client : task->client;
    switch (RemedyFor(troubles_.StateUnreadable(node.name, client))) {
      case Remedy::kTryAgain:
        evaluation_.Refuse(node.id, result);
        break;
      case Remedy::kGiveUpClient:
        evaluation_.GiveUp(node.id, result);
        break;
      case Remedy::kEndRun:
        return Fail(digest ? absl::DataLossError(result.failure)
                           : Unreadable(client, result.failure));
    }
  }
}

}  // namespace macaw::server
