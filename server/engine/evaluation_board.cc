#include "server/engine/evaluation_board.h"

#include <algorithm>
#include <utility>

#include "training/api/metrics.h"

namespace macaw::server {

using fleet::EvaluationKind;

EvaluationBoard::EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                                 uint64_t central_rows, uint64_t clients)
    : round_(round), model_(std::move(model)) {
  if (config.central) {
    for (uint64_t begin = 0; begin < central_rows; begin += config.chunk) {
      slots_.push_back({.task = {.kind = EvaluationKind::kCentralTest,
                                 .begin = begin,
                                 .end = std::min<uint64_t>(begin + config.chunk, central_rows)}});
    }
  }
  if (config.clients) {
    for (uint64_t client = 0; client < clients; ++client) {
      slots_.push_back({.task = {.kind = EvaluationKind::kClientTest, .client = ClientId(client)}});
    }
  }
}

std::vector<fleet::EvaluationTask> EvaluationBoard::Take(WorkerId worker, size_t count,
                                                         TimePoint expires, FenceSource& fences) {
  std::vector<fleet::EvaluationTask> taken;
  for (; next_ < slots_.size() && taken.size() < count; ++next_) {
    Slot& slot = slots_[next_];
    if (slot.state != State::kWaiting) continue;
    slot.state = State::kLeased;
    slot.worker = worker;
    slot.expires = expires;
    slot.task.fence = fences.Next();
    by_fence_[slot.task.fence.counter] = next_;
    ++leased_;
    taken.push_back(slot.task);
  }
  return taken;
}

bool EvaluationBoard::Complete(WorkerId worker, const fleet::EvaluationResult& result) {
  const auto it = by_fence_.find(result.task.fence.counter);
  if (result.round != round_ || it == by_fence_.end()) return false;
  Slot& slot = slots_[it->second];
  if (slot.task.fence != result.task.fence || slot.worker != worker) return false;
  by_fence_.erase(it);
  slot.state = State::kDone;
  slot.sums = result.sums;
  --leased_;
  ++finished_;
  return true;
}

void EvaluationBoard::Renew(WorkerId worker, TimePoint expires) {
  for (Slot& slot : slots_) {
    if (slot.state == State::kLeased && slot.worker == worker) slot.expires = expires;
  }
}

template <typename Condition>
size_t EvaluationBoard::Return(const Condition& condition) {
  size_t count = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != State::kLeased || !condition(slots_[i])) continue;
    slots_[i].state = State::kWaiting;
    by_fence_.erase(slots_[i].task.fence.counter);
    --leased_;
    next_ = std::min(next_, i);
    ++count;
  }
  return count;
}

size_t EvaluationBoard::Expire(TimePoint now) {
  return Return([&](const Slot& slot) { return slot.expires <= now; });
}

size_t EvaluationBoard::DropWorker(WorkerId worker) {
  return Return([&](const Slot& slot) { return slot.worker == worker; });
}

TimePoint EvaluationBoard::NextExpiry() const {
  TimePoint next = TimePoint::max();
  if (leased_ == 0) return next;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kLeased) next = std::min(next, slot.expires);
  }
  return next;
}

EvaluationSums EvaluationBoard::Report() const {
  EvaluationSums report{.round = round_};
  for (const Slot& slot : slots_) {
    if (slot.task.kind == EvaluationKind::kCentralTest) {
      training::AddTo(report.central, slot.sums);
    } else {
      report.clients.push_back({slot.task.client, slot.sums});
    }
  }
  return report;
}

}  // namespace macaw::server
