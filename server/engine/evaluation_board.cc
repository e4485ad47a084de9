#include "server/engine/evaluation_board.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "training/api/metrics.h"

namespace macaw::server {

using fleet::EvaluationKind;

EvaluationBoard::EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                                 uint64_t central_rows, std::span<const uint32_t> train_rows)
    : round_(round), model_(std::move(model)) {
  const auto cut = [&](EvaluationKind kind, ClientId client, uint64_t rows) {
    for (uint64_t begin = 0; begin < rows; begin += config.chunk) {
      slots_.push_back({.task = {.kind = kind,
                                 .client = client,
                                 .begin = begin,
                                 .end = std::min<uint64_t>(begin + config.chunk, rows)}});
    }
  };
  if (config.central) cut(EvaluationKind::kCentralTest, ClientId(0), central_rows);
  for (uint64_t client = 0; config.clients && client < train_rows.size(); ++client) {
    slots_.push_back({.task = {.kind = EvaluationKind::kClientTest, .client = ClientId(client)}});
  }
  for (uint64_t client = 0; config.train && client < train_rows.size(); ++client) {
    cut(EvaluationKind::kClientTrain, ClientId(client), train_rows[client]);
  }
}

EvaluationBoard EvaluationBoard::OfStates(Round round, const VersionIndex& versions) {
  EvaluationBoard board;
  board.round_ = round;
  for (uint64_t page = 0; page < versions.pages(); ++page) {
    std::vector<Attempt> states = versions.Page(page);
    if (states.empty()) continue;
    board.slots_.push_back(
        {.task = {.kind = EvaluationKind::kStateDigest, .states = std::move(states)}});
  }
  return board;
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

const fleet::EvaluationTask* EvaluationBoard::Find(WorkerId worker,
                                                   const fleet::EvaluationResult& result) const {
  const auto it = by_fence_.find(result.task.fence.counter);
  if (result.round != round_ || it == by_fence_.end()) return nullptr;
  const Slot& slot = slots_[it->second];
  const bool same = slot.task.fence == result.task.fence && slot.task.kind == result.task.kind &&
                    slot.task.client == result.task.client && slot.worker == worker;
  return same ? &slot.task : nullptr;
}

bool EvaluationBoard::Complete(WorkerId worker, const fleet::EvaluationResult& result) {
  if (Find(worker, result) == nullptr) return false;
  const auto it = by_fence_.find(result.task.fence.counter);
  Slot& slot = slots_[it->second];
  by_fence_.erase(it);
  slot.state = State::kDone;
  slot.sums = result.sums;
  slot.digest = result.digest;
  slot.task.states = {};
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

size_t EvaluationBoard::Release(WorkerId worker, std::span<const Fence> tasks) {
  if (tasks.empty()) return 0;
  const absl::flat_hash_set<Fence> given_back(tasks.begin(), tasks.end());
  return Return([&](const Slot& slot) {
    return slot.worker == worker && given_back.contains(slot.task.fence);
  });
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
    switch (slot.task.kind) {
      case EvaluationKind::kCentralTest:
        training::AddTo(report.central, slot.sums);
        break;
      case EvaluationKind::kClientTest:
        report.clients.push_back({slot.task.client, slot.sums});
        break;
      case EvaluationKind::kClientTrain:
        training::AddTo(report.train, slot.sums);
        break;
      case EvaluationKind::kStateDigest:
        report.states.push_back(slot.digest);
        break;
    }
  }
  return report;
}

}  // namespace macaw::server
