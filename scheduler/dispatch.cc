#include "scheduler/dispatch.h"

#include <algorithm>

namespace macaw::scheduler {
namespace {

constexpr size_t kLargestPiece = 16384;  // clients: a lease has to fit a message

}  // namespace

DispatchQueue::DispatchQueue(const Plan& plan) {
  for (const WorkerQueue& planned : plan.queues) {
    Queue& queue = queues_[planned.worker.worker];
    queue.entries.assign(planned.queue.begin(), planned.queue.end());
    queue.slots = planned.worker.slots;
    for (const CohortEntry& entry : planned.queue) queue.load += entry.load;
    size_ += planned.queue.size();
  }
}

CohortEntry DispatchQueue::PopFront(Queue& queue) {
  CohortEntry entry = queue.entries.front();
  queue.entries.pop_front();
  queue.load -= entry.load;
  return entry;
}

CohortEntry DispatchQueue::PopBack(Queue& queue) {
  CohortEntry entry = queue.entries.back();
  queue.entries.pop_back();
  queue.load -= entry.load;
  return entry;
}

DispatchQueue::Queue* DispatchQueue::MostLoaded() {
  Queue* most = nullptr;
  for (auto& [worker, queue] : queues_) {
    if (queue.entries.empty()) continue;
    // Load per slot is what decides who finishes last; written as a product to stay in integers.
    if (most == nullptr || queue.load * most->slots > most->load * queue.slots) most = &queue;
  }
  return most;
}

std::vector<CohortEntry> DispatchQueue::Take(WorkerId worker, uint32_t slots, uint64_t least_load) {
  std::vector<CohortEntry> piece;
  while (!returned_.empty() && piece.size() < slots) {
    piece.push_back(returned_.front());
    returned_.pop_front();
  }
  if (piece.empty()) {
    const auto own = queues_.find(worker);
    if (own != queues_.end() && !own->second.entries.empty()) {
      const uint64_t share = std::max(own->second.load / 2, least_load);
      uint64_t taken = 0;
      while (!own->second.entries.empty() && piece.size() < kLargestPiece &&
             (piece.size() < slots || taken < share)) {
        piece.push_back(PopFront(own->second));
        taken += piece.back().load;
      }
    } else {
      // Taking from the back of the fullest queue: its shortest clients, the ones its owner would
      // reach last.
      for (Queue* victim = MostLoaded(); victim != nullptr && piece.size() < slots;
           victim = MostLoaded()) {
        piece.push_back(PopBack(*victim));
      }
    }
  }
  size_ -= piece.size();
  return piece;
}

void DispatchQueue::PutBack(const CohortEntry& entry) {
  returned_.push_back(entry);
  ++size_;
}

void DispatchQueue::RemoveWorker(WorkerId worker) {
  const auto lost = queues_.find(worker);
  if (lost == queues_.end()) return;
  returned_.insert(returned_.end(), lost->second.entries.begin(), lost->second.entries.end());
  queues_.erase(lost);
}

std::vector<ClientId> DispatchQueue::Peek(WorkerId worker, size_t count) const {
  std::vector<ClientId> next;
  const auto add = [&](const std::deque<CohortEntry>& entries) {
    for (const CohortEntry& entry : entries) {
      if (next.size() == count) return;
      next.push_back(entry.client);
    }
  };
  add(returned_);
  if (const auto own = queues_.find(worker); own != queues_.end()) add(own->second.entries);
  return next;
}

}  // namespace macaw::scheduler
