#include "server/engine/evaluation.h"

#include <algorithm>
#include <utility>

namespace macaw::server {
namespace {

constexpr uint64_t kMostTasks = 8192;     // per lease: it and its answer must fit a message
constexpr uint64_t kMostStateTasks = 16;  // each names up to fleet::kStateRange versions

}  // namespace

void Evaluation::Open(EvaluationBoard board) { board_ = std::move(board); }

void Evaluation::OpenComplete(Round round) {
  board_ = EvaluationBoard::WithoutTasks(round);
  judging_ = true;
}

EvaluationSums Evaluation::Report() {
  judging_ = true;
  return board_->Report();
}

void Evaluation::Close() {
  board_.reset();
  judging_ = false;
}

std::optional<fleet::EvaluationLease> Evaluation::Take(const Node& node, const Nodes& nodes,
                                                       TimePoint expires) {
  if (!open()) return std::nullopt;
  std::vector<fleet::EvaluationTask> tasks;
  size_t of = 0;
  if (node.central_test) of = board_->NextModel(EvaluationBoard::Central()).value_or(0);
  // Those of the round's own model first, also where the central rows are done with it.
  if (of > 0 && board_->waiting(EvaluationBoard::Of(node.holding)) > 0) of = 0;
  if (node.central_test)
    TakeFrom(EvaluationBoard::Central(), node, nodes.central().slots, expires, tasks, of);
  if (of == 0) {
    TakeFrom(EvaluationBoard::Of(node.holding), node, nodes.Of(node.holding).slots, expires, tasks,
             of);
  }
  if (tasks.empty()) return std::nullopt;
  return fleet::EvaluationLease{
      .round = board_->round(), .model = board_->model(of), .tasks = std::move(tasks)};
}

void Evaluation::TakeFrom(EvaluationBoard::Queue queue, const Node& node, uint64_t slots,
                          TimePoint expires, std::vector<fleet::EvaluationTask>& tasks, size_t of) {
  const uint64_t waiting = board_->waiting(queue);
  if (waiting == 0) return;
  const uint64_t most = (of_states() ? kMostStateTasks : kMostTasks) - tasks.size();
  const uint64_t share = std::clamp<uint64_t>((waiting * node.slots + slots - 1) / slots, 1, most);
  board_->Take(node.id, queue, share, expires, fences_, tasks, of);
}

}  // namespace macaw::server
