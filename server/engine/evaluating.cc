// The evaluation of models beside the rounds, and the digests of client states at the end of a run.
#include <algorithm>
#include <map>
#include <utility>

#include "core/status.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"
#include "training/api/class_counts.h"

namespace macaw::server {
namespace {

std::vector<uint64_t> TasksOf(const log::EvaluationGaveUp& cut) {
  std::vector<uint64_t> tasks;
  for (size_t i = 0; i + 1 < cut.tasks.size(); i += 2) {
    for (uint64_t task = cut.tasks[i]; task < cut.tasks[i + 1]; ++task) tasks.push_back(task);
  }
  return tasks;
}

}  // namespace

void RoundEngine::OpenEvaluation(Round round, fleet::Blob model, std::vector<ModelWithout> without,
                                 TimePoint now) {
  if (restored_.Evaluated(round)) {
    evaluation_.OpenComplete(round);
    effects_.orders.emplace_back(JudgeEvaluation{.round = round});
    return;
  }
  EvaluationBoard board(round, std::move(model), options_.run.evaluation, options_.personal_models,
                        roster_, options_.run.seed, training::ClassCountsOf(options_.run), hostile_,
                        ConceptGroups(options_.run.transform, options_.run.seed).count(),
                        options_.run.attack.on() && options_.run.attack.backdoor(),
                        options_.models);
  board.AddWithout(std::move(without), options_.run.evaluation);
  BeginEvaluation(std::move(board), now);
}

void RoundEngine::BeginEvaluation(EvaluationBoard board, TimePoint now) {
  const Round round = board.round();
  evaluation_.Open(std::move(board));
  SetEvaluationDeadline(now);
  const bool states = evaluation_.of_states();
  const auto give_up = [&](const log::EvaluationGaveUp& cut) {
    if (cut.states != states) return false;
    evaluation_.GiveUp(states ? AllTasks() : TasksOf(cut));  // a part of the digest tells nothing
    return true;
  };
  if (const log::CutEvaluations::Cuts* cuts = restored_.Cuts(round); cuts != nullptr) {
    for (const log::EvaluationGaveUp& cut : *cuts) give_up(cut);
  }
  if (const auto decided = options_.decisions.find({round, Phase(0)});
      decided != options_.decisions.end()) {
    for (const log::EvaluationGaveUp& cut : decided->second.evaluation) {
      if (give_up(cut)) Record(cut);
    }
  }
  GiveUpDeclined();
  GiveUpAbandoned();
  if (nodes_.size() > 0) GiveUpGone({absence_.gone().begin(), absence_.gone().end()});
}

// ---- tasks that are given up

template <typename Why>
void RoundEngine::GiveUpTasks(const std::vector<uint64_t>& tasks, const Why& why) {
  if (tasks.empty()) return;
  const EvaluationBoard& board = evaluation_.board();
  log::EvaluationGaveUp gave_up{.round = board.round(), .states = evaluation_.of_states()};
  std::map<ClientId, log::GivenUp> clients;
  for (const uint64_t task : tasks) {
    log::GivenUp one = why(task);
    if (gave_up.why.empty()) gave_up.why = one.message;
    if (gave_up.tasks.empty() || gave_up.tasks.back() != task) {
      gave_up.tasks.insert(gave_up.tasks.end(), {task, task + 1});
    } else {
      gave_up.tasks.back() = task + 1;
    }
    if (gave_up.states || board.queue(task) == EvaluationBoard::Central()) continue;
    one.attempt.client = board.task(task).client;
    clients.try_emplace(one.attempt.client, std::move(one));
  }
  for (auto& [client, one] : clients) gave_up.given_up.push_back(std::move(one));
  Record(std::move(gave_up));
  evaluation_.GiveUp(tasks);
}

void RoundEngine::GiveUpTasks(const std::vector<uint64_t>& tasks, fleet::LeftOutReason reason,
                              const std::string& why) {
  GiveUpTasks(tasks, [&](uint64_t) { return log::GivenUp{.reason = reason, .message = why}; });
}

std::vector<uint64_t> RoundEngine::AllTasks() const {
  std::vector<uint64_t> tasks;
  for (const auto& [task, node] : evaluation_.board().Unfinished()) tasks.push_back(task);
  return tasks;
}

void RoundEngine::DoTasksWithout(HoldingId rows, fleet::LeftOutReason reason,
                                 const std::string& why) {
  if (!evaluation_.running() || state_ == State::kEnded) return;
  const EvaluationBoard::Queue queue =
      rows == Absence::Central() ? EvaluationBoard::Central() : EvaluationBoard::Of(rows);
  GiveUpTasks(evaluation_.board().Waiting(queue), reason, why);
}

void RoundEngine::PassEvaluationDeadline(TimePoint now) {
  if (now < evaluation_deadline_ || !evaluation_.running()) return;
  std::map<uint64_t, std::optional<WorkerId>> open;
  for (const auto& [task, node] : evaluation_.board().Unfinished()) open[task] = node;
  GiveUpTasks(AllTasks(), [&](uint64_t task) {
    const EvaluationBoard::Queue queue = evaluation_.board().queue(task);
    const bool central = queue == EvaluationBoard::Central();
    return WhyLate(central ? nodes_.central() : nodes_.Of(EvaluationBoard::HoldingOf(queue)),
                   open.at(task), now);
  });
}

void RoundEngine::OnEvaluationComplete() {
  if (!ending_.has_value()) {
    const Round round = evaluation_.progress().round;
    effects_.orders.emplace_back(JudgeEvaluation{.round = round, .sums = evaluation_.Report()});
    return;
  }
  const EvaluationSums sums = evaluation_.Report();
  if (!sums.without_states)
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
    MACAW_RETURN_IF_ERROR(
        CheckEvaluation(options_.run, roster_, states_.keeps(), *task, result, options_.models));
  }
  return absl::OkStatus();
}

void RoundEngine::TakeEvaluations(const Node& node,
                                  const std::vector<fleet::EvaluationResult>& results,
                                  TimePoint now) {
  for (const fleet::EvaluationResult& result : results) {
    const fleet::EvaluationTask* task = evaluation_.Find(node.id, result);
    if (task == nullptr) continue;  // late; the state version may have been replaced meanwhile
    if (result.failure.empty()) {
      evaluation_.Complete(node.id, result);
      if (options_.round.deadline <= 0) SetEvaluationDeadline(now);
      continue;
    }
    const bool digest = task->kind == fleet::EvaluationKind::kStateDigest;
    const ClientId client = digest ? task->states.front().client : task->client;
    switch (RemedyFor(troubles_.StateUnreadable(node.name, client, now + LeastLease()))) {
      case Remedy::kTryAgain:
        evaluation_.Refuse(node.id, result);
        break;
      case Remedy::kGiveUpClient:
      case Remedy::kLoseState:  // once it is to be trained
        GiveUpTasks({*evaluation_.board().NumberOf(node.id, result)}, fleet::LeftOutReason::kState,
                    absl::StrCat(node.name, ": ", log::Shortened(result.failure)));
        break;
      case Remedy::kEndRun:
        return Fail(digest ? absl::DataLossError(result.failure)
                           : Unreadable(client, result.failure));
    }
  }
}

}  // namespace macaw::server
