#include "server/engine/attempt_table.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "core/status.h"

namespace macaw::server {

AttemptTable::AttemptTable(std::span<const ClientId> clients)
    : clients_(clients.begin(), clients.end()) {
  entries_.reserve(clients_.size());
  for (const ClientId client : clients_) entries_.emplace(client, Entry{});
  queued_ = entries_.size();
}

Attempt AttemptTable::Lease(ClientId client, WorkerId worker, TimePoint expires,
                            FenceSource& fences) {
  const Attempt attempt{client, fences.Next()};
  Restore(attempt, worker, expires);
  return attempt;
}

void AttemptTable::Restore(const Attempt& attempt, WorkerId worker, TimePoint expires) {
  Entry& entry = entries_.at(attempt.client);
  assert(entry.state == State::kQueued);
  entry = {.state = State::kLeased, .fence = attempt.fence, .worker = worker, .expires = expires};
  --queued_;
  ++leased_;
  held_[worker].insert(attempt.client);
  expiries_.SetIfEarlier(worker, expires);
}

void AttemptTable::EndLease(ClientId client, Entry& entry, State state) {
  --leased_;
  const auto held = held_.find(entry.worker);
  held->second.erase(client);
  if (held->second.empty()) {
    expiries_.Remove(entry.worker);
    held_.erase(held);
  }
  if (state == State::kQueued) {
    entry = {};
    ++queued_;
  } else {
    entry.state = state;
  }
}

const AttemptTable::Entry* AttemptTable::FindCurrent(WorkerId worker,
                                                     const Attempt& attempt) const {
  const auto it = entries_.find(attempt.client);
  if (it == entries_.end() || it->second.state != State::kLeased) return nullptr;
  const Entry& entry = it->second;
  return entry.fence == attempt.fence && entry.worker == worker ? &entry : nullptr;
}

void AttemptTable::Renew(WorkerId worker, TimePoint expires) {
  const auto held = held_.find(worker);
  if (held == held_.end()) return;
  for (const ClientId client : held->second) entries_.at(client).expires = expires;
  expiries_.Set(worker, expires);
}

std::vector<Attempt> AttemptTable::NotHeld(WorkerId worker,
                                           std::span<const Attempt> attempts) const {
  std::vector<Attempt> lost;
  for (const Attempt& attempt : attempts) {
    if (FindCurrent(worker, attempt) == nullptr) lost.push_back(attempt);
  }
  return lost;
}

std::vector<AttemptTable::Late> AttemptTable::Expire(TimePoint now) {
  std::vector<Late> ended;
  while (const std::optional<WorkerId> worker = expiries_.Pop(now)) {
    std::vector<ClientId> over;
    TimePoint next = TimePoint::max();
    for (const ClientId client : held_.at(*worker)) {
      const TimePoint expires = entries_.at(client).expires;
      if (expires <= now) {
        over.push_back(client);
      } else {
        next = std::min(next, expires);
      }
    }
    for (const ClientId client : over) {
      Entry& entry = entries_.at(client);
      ended.push_back({.worker = *worker, .attempt = {client, entry.fence}});
      EndLease(client, entry, State::kQueued);
    }
    if (next != TimePoint::max()) expiries_.Set(*worker, next);
  }
  std::ranges::sort(ended, {},
                    [](const Late& late) { return std::pair(late.worker, late.attempt); });
  return ended;
}

std::vector<Attempt> AttemptTable::DropWorker(WorkerId worker) {
  std::vector<Attempt> ended;
  const auto held = held_.find(worker);
  if (held == held_.end()) return ended;
  for (const ClientId client : held->second) ended.push_back({client, entries_.at(client).fence});
  for (const Attempt& attempt : ended)
    EndLease(attempt.client, entries_.at(attempt.client), State::kQueued);
  return ended;
}

std::vector<Attempt> AttemptTable::Release(WorkerId worker, std::span<const Attempt> attempts) {
  std::vector<Attempt> ended;
  for (const Attempt& attempt : attempts) {
    if (FindCurrent(worker, attempt) == nullptr) continue;
    EndLease(attempt.client, entries_.at(attempt.client), State::kQueued);
    ended.push_back(attempt);
  }
  return ended;
}

absl::Status AttemptTable::Judge(WorkerId worker, std::span<const Attempt> attempts) const {
  absl::flat_hash_set<ClientId> seen;
  for (const Attempt& attempt : attempts) {
    if (!seen.insert(attempt.client).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", attempt.client.value, " is in the part twice"));
    }
    if (FindCurrent(worker, attempt) == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the attempt ", attempt.fence.epoch, "/", attempt.fence.counter, " of client ",
          attempt.client.value, " is not current (its lease ran out, or the round is over)"));
    }
  }
  return absl::OkStatus();
}

void AttemptTable::Settle(std::span<const Attempt> attempts, State state, uint64_t& counter) {
  for (const Attempt& attempt : attempts) {
    Entry& entry = entries_.at(attempt.client);
    assert(entry.state == State::kLeased && entry.fence == attempt.fence);
    EndLease(attempt.client, entry, state);
    ++counter;
  }
}

void AttemptTable::Count(std::span<const Attempt> attempts) {
  Settle(attempts, State::kCounted, counted_);
}
void AttemptTable::GiveUpQueued(ClientId client) {
  Entry& entry = entries_.at(client);
  assert(entry.state == State::kQueued);
  entry.state = State::kGivenUp;
  --queued_;
  ++given_up_;
}

void AttemptTable::GiveUp(std::span<const Attempt> attempts) {
  Settle(attempts, State::kGivenUp, given_up_);
}

void AttemptTable::GiveUpAll() {
  for (auto& [client, entry] : entries_) entry.state = State::kGivenUp;
  held_.clear();
  expiries_.Clear();
  given_up_ = entries_.size();
  queued_ = leased_ = counted_ = 0;
}

std::pair<Attempt, WorkerId> AttemptTable::LeaseOf(ClientId client) const {
  const Entry& entry = entries_.at(client);
  assert(entry.state == State::kLeased);
  return {{client, entry.fence}, entry.worker};
}

uint64_t AttemptTable::leased_to(WorkerId worker) const {
  const auto held = held_.find(worker);
  return held == held_.end() ? 0 : held->second.size();
}

std::vector<WorkerId> AttemptTable::Holders() const {
  std::vector<WorkerId> holders;
  for (const auto& [worker, clients] : held_) holders.push_back(worker);
  std::ranges::sort(holders);
  return holders;
}

std::vector<AttemptTable::Held> AttemptTable::Leases() const {
  std::vector<Held> leases;
  leases.reserve(leased_);
  for (const ClientId client : clients_) {
    const Entry& entry = entries_.at(client);
    if (entry.state != State::kLeased) continue;
    leases.push_back(
        {.attempt = {client, entry.fence}, .worker = entry.worker, .expires = entry.expires});
  }
  return leases;
}

AttemptTable::State AttemptTable::StateOf(ClientId client) const {
  return entries_.at(client).state;
}

std::vector<ClientId> AttemptTable::Remaining() const {
  std::vector<ClientId> remaining;
  for (const ClientId client : clients_) {
    if (entries_.at(client).state != State::kGivenUp) remaining.push_back(client);
  }
  return remaining;
}

}  // namespace macaw::server
