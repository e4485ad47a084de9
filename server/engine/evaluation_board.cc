#include "server/engine/evaluation_board.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/random.h"
#include "training/api/metrics.h"

namespace macaw::server {

using fleet::EvaluationKind;

// The clients whose rows are evaluated after this round, ascending. nullopt: all.
static std::optional<std::vector<uint64_t>> SampleOf(Round round, const EvaluationConfig& config,
                                                     uint64_t clients, uint64_t seed,
                                                     const HostileClients& hostile) {
  std::vector<uint64_t> honest;  // if some are hostile
  for (uint64_t client = 0; hostile.count() > 0 && client < clients; ++client) {
    if (!hostile.Contains(ClientId(client))) honest.push_back(client);
  }
  if (hostile.count() > 0) clients = honest.size();
  if (config.sample == 0 || config.sample >= clients) {
    if (hostile.count() > 0) return honest;
    return std::nullopt;
  }
  RandomStream stream({.seed = seed, .purpose = Purpose::kEvaluation, .round = round});
  std::vector<uint64_t> sample = SampleWithoutReplacement(stream, clients, config.sample);
  if (hostile.count() > 0) {
    for (uint64_t& client : sample) client = honest[client];
  }
  std::ranges::sort(sample);
  return sample;
}

void EvaluationBoard::Add(Queue queue, fleet::EvaluationTask task) {
  if (queue.value >= queues_.size()) queues_.resize(queue.value + 1);
  Line& line = queues_[queue.value];
  line.slots.push_back(slots_.size());
  ++line.waiting;
  slots_.push_back({.task = std::move(task), .queue = queue});
}

EvaluationBoard::EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                                 bool personal_models, const Roster& roster, uint64_t seed,
                                 const HostileClients& hostile)
    : round_(round), model_(std::move(model)) {
  const auto cut = [&](Queue queue, EvaluationKind kind, ClientId client, uint64_t place,
                       uint64_t rows) {
    for (uint64_t begin = 0; begin < rows; begin += config.chunk) {
      Add(queue, {.kind = kind,
                  .client = client,
                  .place = place,
                  .begin = begin,
                  .end = std::min<uint64_t>(begin + config.chunk, rows)});
    }
  };
  const auto queue_of = [&](ClientId client) { return Of(roster.HoldingOf(client)); };
  if (config.central) {
    cut(Central(), EvaluationKind::kCentralTest, ClientId(0), 0, roster.central_test_rows());
  }
  const std::optional<std::vector<uint64_t>> sample =
      SampleOf(round, config, roster.clients(), seed, hostile);
  const auto all_rows_of_clients = [&](EvaluationKind kind) {
    const uint64_t count = sample.has_value() ? sample->size() : roster.clients();
    for (uint64_t i = 0; i < count; ++i) {
      const ClientId client(sample.has_value() ? (*sample)[i] : i);
      Add(queue_of(client), {.kind = kind, .client = client, .place = roster.PlaceOf(client)});
    }
  };
  if (config.clients) all_rows_of_clients(EvaluationKind::kClientTest);
  if (config.clients && personal_models) all_rows_of_clients(EvaluationKind::kClientTestGlobal);
  if (config.clients && config.fine_tune.steps > 0)
    all_rows_of_clients(EvaluationKind::kClientTuned);
  if (config.validation) all_rows_of_clients(EvaluationKind::kClientValidation);
  for (ClientId client; config.train && client.value < roster.clients(); ++client.value) {
    cut(queue_of(client), EvaluationKind::kClientTrain, client, roster.PlaceOf(client),
        roster.rows()[client.value]);
  }
}

EvaluationBoard EvaluationBoard::OfStates(Round round, const VersionIndex& versions,
                                          const Roster& roster) {
  EvaluationBoard board;
  board.round_ = round;
  for (uint64_t page = 0; page < versions.pages(); ++page) {
    std::map<HoldingId, std::vector<Attempt>> states;
    for (const Attempt& state : versions.Page(page))
      states[roster.HoldingOf(state.client)].push_back(state);
    for (auto& [holding, held] : states) {
      board.Add(Of(holding), {.kind = EvaluationKind::kStateDigest, .states = std::move(held)});
    }
  }
  return board;
}

void EvaluationBoard::Take(WorkerId worker, Queue queue, size_t count, TimePoint expires,
                           FenceSource& fences, std::vector<fleet::EvaluationTask>& taken) {
  if (queue.value >= queues_.size()) return;
  Line& line = queues_[queue.value];
  std::vector<size_t>& held = held_[worker];
  next_expiry_ = std::min(next_expiry_, expires);
  for (; line.next < line.slots.size() && count > 0; ++line.next) {
    const size_t i = line.slots[line.next];
    Slot& slot = slots_[i];
    if (slot.state != State::kWaiting) continue;
    slot.state = State::kLeased;
    slot.worker = worker;
    slot.expires = expires;
    slot.task.fence = fences.Next();
    by_fence_[slot.task.fence.counter] = i;
    held.push_back(i);
    --line.waiting;
    --count;
    taken.push_back(slot.task);
  }
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

EvaluationBoard::Slot* EvaluationBoard::FindSlot(WorkerId worker,
                                                 const fleet::EvaluationResult& result) {
  if (Find(worker, result) == nullptr) return nullptr;
  return &slots_[by_fence_.at(result.task.fence.counter)];
}

bool EvaluationBoard::Complete(WorkerId worker, const fleet::EvaluationResult& result) {
  Slot* slot = FindSlot(worker, result);
  if (slot == nullptr) return false;
  by_fence_.erase(result.task.fence.counter);
  slot->state = State::kDone;
  slot->sums = result.sums;
  slot->digest = result.digest;
  slot->task.states = {};
  ++finished_;
  return true;
}

void EvaluationBoard::GiveUp(WorkerId worker, const fleet::EvaluationResult& result) {
  Slot* slot = FindSlot(worker, result);
  if (slot == nullptr) return;
  by_fence_.erase(result.task.fence.counter);
  slot->state = State::kGivenUp;
  ++finished_;
}

void EvaluationBoard::DoWithout(Queue queue) {
  if (waiting(queue) == 0) return;
  Line& line = queues_[queue.value];
  for (const size_t i : line.slots) {
    if (slots_[i].state != State::kWaiting) continue;
    slots_[i].state = State::kGivenUp;
    ++finished_;
    --line.waiting;
  }
}

void EvaluationBoard::Refuse(WorkerId worker, const fleet::EvaluationResult& result) {
  const Slot* slot = FindSlot(worker, result);
  if (slot == nullptr) return;
  const auto place = static_cast<size_t>(slot - slots_.data());
  std::erase(held_.at(worker), place);
  Return(place);
}

absl::flat_hash_map<WorkerId, uint64_t> EvaluationBoard::Held() const {
  absl::flat_hash_map<WorkerId, uint64_t> held;
  for (const auto& [fence, i] : by_fence_) ++held[slots_[i].worker];
  return held;
}

void EvaluationBoard::Renew(WorkerId worker, TimePoint expires) {
  const auto held = held_.find(worker);
  if (held == held_.end()) return;
  for (const size_t i : held->second) slots_[i].expires = expires;
  next_expiry_ = std::min(next_expiry_, expires);
}

void EvaluationBoard::Return(size_t slot) {
  Slot& back = slots_[slot];
  back.state = State::kWaiting;
  by_fence_.erase(back.task.fence.counter);
  Line& line = queues_[back.queue.value];
  ++line.waiting;
  const auto at = std::ranges::lower_bound(line.slots, slot);
  line.next = std::min(line.next, static_cast<size_t>(at - line.slots.begin()));
}

size_t EvaluationBoard::Expire(TimePoint now) {
  size_t count = 0;
  if (now < NextExpiry()) return count;
  next_expiry_ = TimePoint::max();
  absl::erase_if(held_, [&](auto& entry) {
    std::vector<size_t>& held = entry.second;
    std::erase_if(held, [&](size_t slot) {
      if (slots_[slot].state != State::kLeased) return true;
      if (slots_[slot].expires > now) {
        next_expiry_ = std::min(next_expiry_, slots_[slot].expires);
        return false;
      }
      Return(slot);
      ++count;
      return true;
    });
    return held.empty();
  });
  return count;
}

size_t EvaluationBoard::DropWorker(WorkerId worker) {
  const auto node = held_.extract(worker);
  if (node.empty()) return 0;
  size_t count = 0;
  for (const size_t slot : node.mapped()) {
    if (slots_[slot].state != State::kLeased) continue;
    Return(slot);
    ++count;
  }
  return count;
}

size_t EvaluationBoard::Release(WorkerId worker, std::span<const Fence> tasks) {
  const auto held = held_.find(worker);
  if (tasks.empty() || held == held_.end()) return 0;
  const absl::flat_hash_set<Fence> given_back(tasks.begin(), tasks.end());
  return std::erase_if(held->second, [&](size_t slot) {
    const bool theirs =
        slots_[slot].state == State::kLeased && given_back.contains(slots_[slot].task.fence);
    if (theirs) Return(slot);
    return theirs;
  });
}

EvaluationSums EvaluationBoard::Report() const {
  EvaluationSums report{.round = round_};
  for (const Slot& slot : slots_) {
    if (slot.state == State::kGivenUp) {
      report.given_up.push_back(slot.task.client);
      continue;
    }
    switch (slot.task.kind) {
      case EvaluationKind::kCentralTest:
        training::AddTo(report.central, slot.sums);
        break;
      case EvaluationKind::kClientTest:
        report.clients.push_back({slot.task.client, slot.sums});
        break;
      case EvaluationKind::kClientTestGlobal:
        report.global.push_back({slot.task.client, slot.sums});
        break;
      case EvaluationKind::kClientTuned:
        report.tuned.push_back({slot.task.client, slot.sums});
        break;
      case EvaluationKind::kClientValidation:
        report.validation.push_back({slot.task.client, slot.sums});
        break;
      case EvaluationKind::kClientTrain:
        training::AddTo(report.train, slot.sums);
        break;
      case EvaluationKind::kStateDigest:
        report.states.push_back(slot.digest);
        break;
    }
  }
  std::ranges::sort(report.given_up);
  report.given_up.erase(std::ranges::unique(report.given_up).begin(), report.given_up.end());
  return report;
}

}  // namespace macaw::server
