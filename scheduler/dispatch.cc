#include "scheduler/dispatch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace macaw::scheduler {
namespace {

constexpr size_t kLargestPiece = 16384;  // clients; a lease must fit into a message
// With at most this many clients, a new plan costs about 100 µs on 64 slots and is made whenever it
// may help.
constexpr size_t kFew = 768;
// With more clients, a new plan is made after this fraction of the remaining clients was handed
// out, and at each request once no more than this many clients per slot remain.
constexpr size_t kBalanceEvery = 8;
constexpr size_t kEndPerSlot = 2;
// The fraction of a worker's queue that one piece may take. With it, even a machine that becomes
// three times as slow ends about in time.
constexpr double kShare = 0.25;
// With at most this many clients per slot remaining, no client should wait behind a running one,
// unless the worker's times are so certain that nobody else will want the client. Waiting can cost
// a client's time at the end of the round, not waiting costs a request for each of these clients.
// So there are fewer of them where a client is worth less than this many requests.
constexpr size_t kAheadPerSlot = 8;
constexpr double kWorthWaiting = 4;
constexpr double kCertain = 0.1;
// A worker that shares its queue with nobody gets the work of so many seconds at once. One that
// joins meanwhile waits that long for its share.
constexpr double kAlone = 1;
// The weight of the plan's costs against the times observed in this round, in clients.
constexpr double kBeliefKnown = 8, kBeliefUnknown = 0.25;
// The remaining time of a client that should already have ended: a fraction of its planned time
// plus a fraction of its delay. An idle slot is expected to ask after the second fraction of the
// time for which it has not asked.
constexpr double kLateOfPlan = 0.1, kLateOfDelay = 0.5;
// A slot that was passed over in favour of another asks again when that one is late by this
// fraction.
constexpr double kPatience = 0.1, kLeastPatience = 1e-3;

}  // namespace

DispatchQueue::DispatchQueue(const Plan& plan)
    : hand_out_(plan.hand_out), uncollected_(plan.uncollected) {
  double seconds = 0;
  for (const WorkerQueue& planned : plan.queues) {
    Worker& worker = workers_[planned.worker.worker];
    worker.info = planned.worker;
    worker.slots.resize(planned.worker.slots);
    worker.queue.assign(planned.queue.begin(), planned.queue.end());
    slots_ += planned.worker.slots;
    for (const CohortEntry& entry : planned.queue) worker.queued += SecondsOn(worker, entry);
    seconds += worker.queued;
    size_ += planned.queue.size();
  }
  if (size_ > 0) mean_seconds_ = seconds / static_cast<double>(size_);
  common_.assign(plan.common.begin(), plan.common.end());
  size_ += plan.common.size();
}

double DispatchQueue::SecondsOn(const Worker& worker, const CohortEntry& entry) const {
  return worker.info.costs.Seconds(WorkOf(entry));
}

// By which factor clients take longer than planned, judged by this round's times.
double DispatchQueue::Pace(const Worker& worker) const {
  const bool known = worker.info.costs.known;
  // Without known times the plan counts rows; the other workers' pace converts them to seconds.
  const double prior = known || !(planned_ > 0) ? 1.0 : took_ / planned_;
  const double belief = mean_seconds_ * (known ? kBeliefKnown : kBeliefUnknown);
  const double weight = worker.planned + belief;
  return weight > 0 ? (worker.took + belief * prior) / weight : prior;
}

DispatchQueue::Worker& DispatchQueue::Known(const Ask& ask) {
  const auto [it, fresh] = workers_.try_emplace(ask.worker);
  Worker& worker = it->second;
  if (!fresh) return worker;
  // A new worker is assumed to be like the mean of the others until its own times are known.
  std::vector<Costs> others;
  for (const auto& [id, other] : workers_) {
    if (id != ask.worker) others.push_back(other.info.costs);
  }
  worker.info = {
      .worker = ask.worker, .slots = ask.slots, .costs = GuessedCosts(others).value_or(Costs{})};
  worker.slots.resize(ask.slots, {.start = ask.now, .free = ask.now});
  slots_ += ask.slots;
  return worker;
}

void DispatchQueue::Observe(Worker& worker, const Ask& ask) {
  // The request does not say which slots are idle: assume those that were expected to be free
  // first.
  std::vector<Slot*> order;
  for (Slot& slot : worker.slots) order.push_back(&slot);
  std::ranges::stable_sort(order, {}, [](const Slot* slot) { return slot->free; });
  for (size_t i = 0; i < order.size() && i < ask.idle; ++i) {
    Slot& slot = *order[i];
    if (slot.given > 0) {
      worker.took += ask.now - slot.start;
      worker.planned += slot.given;
      took_ += ask.now - slot.start;
      planned_ += slot.given;
    }
    slot = {.start = ask.now, .free = ask.now};
  }
}

void DispatchQueue::Give(Worker& worker, const CohortEntry& entry, double now) {
  Slot& slot = *std::ranges::min_element(worker.slots, {}, &Slot::free);
  const double seconds = SecondsOn(worker, entry);
  if (slot.given == 0) slot.start = now;
  slot.given += seconds;
  slot.free = std::max(slot.free, now) + seconds * Pace(worker);
  --size_;
  ++moved_;
}

CohortEntry DispatchQueue::PopFront(Worker& worker) {
  const CohortEntry entry = worker.queue.front();
  worker.queue.pop_front();
  worker.queued = worker.queue.empty() ? 0 : worker.queued - SecondsOn(worker, entry);
  return entry;
}

CohortEntry DispatchQueue::PopBack(Worker& worker) {
  const CohortEntry entry = worker.queue.back();
  worker.queue.pop_back();
  worker.queued = worker.queue.empty() ? 0 : worker.queued - SecondsOn(worker, entry);
  return entry;
}

bool DispatchQueue::IsUntried(const Worker& worker) {
  const bool has_none =
      std::ranges::none_of(worker.slots, [](const Slot& slot) { return slot.given > 0; });
  return worker.info.costs.of_others && worker.planned == 0 && has_none;
}

Piece DispatchQueue::Take(const Ask& ask) {
  Worker& worker = Known(ask);
  Observe(worker, ask);
  Piece piece;
  switch (hand_out_) {
    case HandOut::kWhole:
      piece = TakeWhole(worker, ask);
      break;
    case HandOut::kPull:
      piece = TakeNext(worker, ask);
      break;
    case HandOut::kGuided:
      piece = TakeGuided(worker, ask);
      break;
  }
  for (const CohortEntry& entry : piece.clients) Give(worker, entry, ask.now);
  return piece;
}

Piece DispatchQueue::TakeWhole(Worker& worker, const Ask& ask) {
  Piece piece{.when_idle = true};
  while (!worker.queue.empty() && piece.clients.size() < kLargestPiece)
    piece.clients.push_back(PopFront(worker));
  // Clients that came back go to a worker whose queue is empty, one for each idle slot.
  if (piece.clients.empty()) {
    const size_t idle = std::clamp<size_t>(ask.idle, 1, kLargestPiece);
    while (!common_.empty() && piece.clients.size() < idle) {
      piece.clients.push_back(common_.front());
      common_.pop_front();
    }
  }
  if (!piece.clients.empty() || size_ == 0 || ask.idle == 0) return piece;
  // What is left belongs to workers that have not asked for it. This one takes half of a queue, so
  // that something is left for others that wait, and for its worker.
  if (ask.now < uncollected_) {
    piece.look_again = uncollected_;
  } else if (Worker* silent = LastToEnd(); silent != nullptr) {
    const size_t half = std::min((silent->queue.size() + 1) / 2, kLargestPiece);
    while (piece.clients.size() < half) piece.clients.push_back(PopFront(*silent));
  }
  return piece;
}

Piece DispatchQueue::TakeNext(const Worker& worker, const Ask& ask) {
  Piece piece{.when_idle = true};
  double seconds = 0;
  const double least = worker.info.costs.known ? ask.least_seconds * ask.slots : 0;
  while (!common_.empty() && ask.idle > 0 && piece.clients.size() < kLargestPiece &&
         (piece.clients.size() < ask.idle || seconds < least)) {
    seconds += SecondsOn(worker, common_.front());
    piece.clients.push_back(common_.front());
    common_.pop_front();
  }
  return piece;
}

Piece DispatchQueue::TakeGuided(Worker& worker, const Ask& ask) {
  if (BalanceDue(worker)) Balance(ask.now);
  Piece piece;
  const bool known = worker.info.costs.known || worker.planned > 0;
  const double pace = Pace(worker);
  const bool alone = workers_.size() == 1;
  const double worth = alone ? std::max(ask.least_seconds, kAlone) : ask.least_seconds;
  const double budget =
      known ? std::max(kShare * worker.queued, pace > 0 ? worth * ask.slots / pace : 0.0) : 0.0;
  const bool certain =
      alone || (worker.info.costs.known && worker.info.costs.uncertainty < kCertain);
  const size_t least = certain ? std::max(ask.idle, 1u) : ask.idle;  // clients
  double seconds = 0;
  // Clients that came back go before all others.
  while (!common_.empty() && piece.clients.size() < ask.idle) {
    piece.clients.push_back(common_.front());
    common_.pop_front();
  }
  while (!worker.queue.empty() && piece.clients.size() < kLargestPiece) {
    const double next = SecondsOn(worker, worker.queue.front());
    if (piece.clients.size() >= least && seconds + next > budget) break;
    seconds += next;
    piece.clients.push_back(PopFront(worker));
  }
  if (size_ > kFew) {
    // Too many to plan anew each time a queue is empty: take the shortest clients of the queue that
    // is expected to end last.
    for (Worker* last = LastToEnd(); last != nullptr && piece.clients.size() < ask.idle;
         last = LastToEnd()) {
      piece.clients.push_back(PopBack(*last));
    }
  }
  // Without a client it would never report times. One is left for the others.
  if (piece.clients.empty() && ask.idle > 0 && size_ > 1 && IsUntried(worker)) {
    if (Worker* last = LastToEnd(); last != nullptr) piece.clients.push_back(PopBack(*last));
  }
  const double requests =
      ask.least_seconds > 0 ? mean_seconds_ * pace / ask.least_seconds : kWorthWaiting;
  const double few = kAheadPerSlot * std::min(requests / kWorthWaiting, 1.0);
  piece.when_idle = piece.clients.empty() || (!known && !alone) ||
                    (!certain && static_cast<double>(size_) <= few * static_cast<double>(slots_));
  if (piece.clients.empty() && size_ > 0) {
    const double patience = kPatience * mean_seconds_ * pace;
    piece.look_again =
        std::max(next_start_, ask.now) + std::max({patience, ask.least_seconds, kLeastPatience});
  }
  return piece;
}

bool DispatchQueue::BalanceDue(const Worker& asker) const {
  if (size_ == 0) return false;
  // There is no other worker to share with.
  if (workers_.size() == 1 && common_.empty() && !asker.queue.empty()) return false;
  const bool changed = moved_ * kBalanceEvery >= size_;
  if (size_ > kFew) return asker.queue.empty() && changed;
  return asker.queue.empty() || changed || size_ <= kEndPerSlot * slots_;
}

void DispatchQueue::Balance(double now) {
  std::vector<WorkerInfo> infos;
  std::vector<Worker*> workers;
  std::vector<std::pair<double, CohortEntry>> rest;
  const Costs scale = workers_.begin()->second.info.costs;
  const auto add = [&](std::deque<CohortEntry>& queue) {
    for (const CohortEntry& entry : queue)
      rest.emplace_back(scale.WithoutState(WorkOf(entry)), entry);
    queue.clear();
  };
  add(common_);
  for (auto& [id, worker] : workers_) {
    infos.push_back(worker.info);
    infos.back().costs = worker.info.costs.Slower(Pace(worker));
    workers.push_back(&worker);
    add(worker.queue);
    worker.queued = 0;
  }
  std::ranges::sort(rest, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.client < b.second.client;
  });
  Placement placement(infos);
  for (size_t w = 0; w < workers.size(); ++w) {
    for (uint32_t s = 0; s < workers[w]->slots.size(); ++s) {
      const Slot& slot = workers[w]->slots[s];
      double free = slot.free;
      // A slot that is late is expected to take the longer, the later it is.
      if (free < now)
        free = now + kLateOfPlan * (slot.free - slot.start) + kLateOfDelay * (now - slot.free);
      placement.Occupy(w, s, std::max(free, now));
    }
  }
  next_start_ = std::numeric_limits<double>::infinity();
  for (const auto& [seconds, entry] : rest) {
    const Placement::Turn turn = placement.Put(entry);
    Worker& worker = *workers[turn.worker];
    worker.queue.push_back(entry);
    worker.queued += SecondsOn(worker, entry);
    next_start_ = std::min(next_start_, turn.start);
  }
  moved_ = 0;
}

DispatchQueue::Worker* DispatchQueue::LastToEnd() {
  Worker* last = nullptr;
  double end = -1;
  for (auto& [id, worker] : workers_) {
    if (worker.queue.empty()) continue;
    const double seconds = worker.queued * Pace(worker) / static_cast<double>(worker.slots.size());
    if (seconds > end) {
      end = seconds;
      last = &worker;
    }
  }
  return last;
}

void DispatchQueue::PutBack(const CohortEntry& entry) {
  common_.push_back(entry);
  ++size_;
  ++moved_;
}

void DispatchQueue::Remove(ClientId client) {
  const auto is = [&](const CohortEntry& entry) { return entry.client == client; };
  size_t removed = std::erase_if(common_, is);
  for (auto& [id, worker] : workers_) {
    for (const CohortEntry& entry : worker.queue) {
      if (is(entry)) worker.queued -= SecondsOn(worker, entry);
    }
    removed += std::erase_if(worker.queue, is);
  }
  size_ -= removed;
}

void DispatchQueue::RemoveWorker(WorkerId worker) {
  const auto lost = workers_.find(worker);
  if (lost == workers_.end()) return;
  common_.insert(common_.end(), lost->second.queue.begin(), lost->second.queue.end());
  slots_ -= lost->second.slots.size();
  moved_ += size_;  // forces a new plan, because its slots are gone
  workers_.erase(lost);
}

}  // namespace macaw::scheduler
