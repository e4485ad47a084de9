#pragma once

#include <optional>
#include <vector>

#include "core/clock.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/evaluation_board.h"
#include "server/engine/nodes.h"
#include "server/engine/troubles.h"

namespace macaw::server {

// The evaluation that runs beside the rounds. It evaluates one model at a time, and digests the
// client states at the end of the run. Pure; one thread.
class Evaluation {
 public:
  // `epoch`: the server's epoch, for the fences of the tasks. Tasks have a fence source of their
  // own, so that the fences of attempts have no gaps.
  explicit Evaluation(uint32_t epoch) : fences_(epoch) {}

  //   closed → open → complete → judging (its result has been reported) → closed
  void Open(EvaluationBoard board);
  // Opens an evaluation that an earlier server had completed and reported.
  void OpenComplete(Round round);
  bool open() const { return board_.has_value(); }  // until Close
  bool complete() const { return open() && !judging_ && board_->done(); }
  bool judging() const { return judging_; }
  bool running() const { return open() && !judging_; }  // its tasks can be done
  EvaluationSums Report();                              // once complete()
  void Close();

  struct Progress {
    Round round{};
    uint64_t tasks = 0, done = 0;
  };
  Progress progress() const {  // zeros while no evaluation is open
    return open() ? Progress{board_->round(), board_->tasks(), board_->finished()} : Progress();
  }
  // The number of tasks that each node holds, if any.
  absl::flat_hash_map<WorkerId, uint64_t> Held() const {
    return open() ? board_->Held() : absl::flat_hash_map<WorkerId, uint64_t>();
  }

  // Leases the node an even share of the tasks that wait for nodes with its rows. Returns nullopt
  // if no such task waits.
  std::optional<fleet::EvaluationLease> Take(const Node& node, const Nodes& nodes,
                                             TimePoint expires);
  // Whether tasks wait: on the central test set, on this holding's rows, any.
  bool central_waits() const { return open() && board_->waiting(EvaluationBoard::Central()) > 0; }
  bool waits(HoldingId holding) const {
    return open() && board_->waiting(EvaluationBoard::Of(holding)) > 0;
  }
  bool waits() const { return open() && board_->waiting() > 0; }
  bool waits_for(const Node& node) const {  // for this node, among others
    return waits(node.holding) || (node.central_test && central_waits());
  }

  // The task to which this result belongs. Null if the result comes too late.
  const fleet::EvaluationTask* Find(WorkerId node, const fleet::EvaluationResult& result) const {
    return open() ? board_->Find(node, result) : nullptr;
  }
  void Complete(WorkerId node, const fleet::EvaluationResult& result) {
    if (open()) board_->Complete(node, result);
  }
  // The board of the open evaluation.
  const EvaluationBoard& board() const { return *board_; }
  bool of_states() const { return open() && !board_->model().named(); }
  // Only while it is open and not complete.
  void GiveUp(std::span<const uint64_t> tasks) { board_->GiveUp(tasks); }
  void Refuse(WorkerId node, const fleet::EvaluationResult& result) {
    if (open()) board_->Refuse(node, result);
  }
  void Renew(WorkerId node, TimePoint expires) {
    if (open()) board_->Renew(node, expires);
  }
  void Release(WorkerId node, std::span<const Fence> tasks) {
    if (open()) board_->Release(node, tasks);
  }
  // Whether tasks wait again because of it.
  bool DropNode(WorkerId node) { return open() && board_->DropWorker(node) > 0; }
  bool Expire(TimePoint now) { return open() && board_->Expire(now) > 0; }
  TimePoint NextExpiry() const { return open() ? board_->NextExpiry() : TimePoint::max(); }

 private:
  void TakeFrom(EvaluationBoard::Queue queue, const Node& node, uint64_t slots, TimePoint expires,
                std::vector<fleet::EvaluationTask>& tasks, size_t of);

  std::optional<EvaluationBoard> board_;
  bool judging_ = false;
  FenceSource fences_;
};

}  // namespace macaw::server
