#include "server/engine/evaluation_board.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/engine/possible_losses.h"
#include "training/api/metrics.h"

namespace macaw::server {

using fleet::EvaluationKind;

namespace {

constexpr uint64_t kMostAnswerBytes = uint64_t{1} << 20;  // of a lease's counts
constexpr uint64_t kBytesPerCount = 5;                    // an index and a small number, as varints

EvaluatedRows RowsOf(EvaluationKind kind, bool heldout) {
  switch (kind) {
    case EvaluationKind::kCentralTest:
      return EvaluatedRows::kCentral;
    case EvaluationKind::kCentralValidation:
      return EvaluatedRows::kCentralValidation;
    case EvaluationKind::kClientTrain:
      return EvaluatedRows::kTrain;
    case EvaluationKind::kClientTestGlobal:
      return heldout ? EvaluatedRows::kHeldout : EvaluatedRows::kGlobal;
    case EvaluationKind::kClientTuned:
      return heldout ? EvaluatedRows::kHeldoutTuned : EvaluatedRows::kTuned;
    case EvaluationKind::kClientValidation:
      return EvaluatedRows::kValidation;
    case EvaluationKind::kClientTest:
    case EvaluationKind::kCentralBackdoor:  // nobody asks
    case EvaluationKind::kStateDigest:
      break;
  }
  return EvaluatedRows::kClients;
}

}  // namespace

void EvaluationBoard::Add(std::vector<CutTask> tasks) {
  for (CutTask& cut : tasks) {
    if (cut.queue.value >= queues_.size()) queues_.resize(cut.queue.value + 1);
    Line& line = queues_[cut.queue.value];
    line.slots.push_back(slots_.size());
    ++line.waiting;
    slots_.push_back({.task = std::move(cut.task),
                      .queue = cut.queue,
                      .heldout = cut.heldout,
                      .of = cut.of,
                      .group = cut.group});
  }
}

EvaluationBoard::EvaluationBoard(Round round, fleet::Blob model, const EvaluationConfig& config,
                                 bool personal_models, const Roster& roster, uint64_t seed,
                                 const training::ClassCounts& counts, const HostileClients& hostile,
                                 uint32_t groups, bool backdoor, uint32_t models)
    : round_(round),
      model_(std::move(model)),
      groups_(groups),
      central_rows_(roster.central_test_rows()),
      classes_(counts),
      models_(models) {
  for (const uint32_t rows : roster.rows()) rows_of_a_client_ += rows;
  rows_of_a_client_ /= std::max<uint64_t>(roster.clients(), 1);
  Add(CutEvaluation(config,
                    {.round = round,
                     .personal_models = personal_models,
                     .seed = seed,
                     .groups = groups,
                     .backdoor = backdoor},
                    roster, hostile));
}

void EvaluationBoard::AddWithout(std::vector<ModelWithout> without,
                                 const EvaluationConfig& config) {
  if (!config.test || !config.central) return;
  without_ = std::move(without);
  for (size_t i = 0; i < without_.size(); ++i)
    Add(CutCentralTest(config, groups_, central_rows_, i + 1));
}

EvaluationBoard EvaluationBoard::OfStates(Round round, const VersionIndex& versions,
                                          const Roster& roster) {
  EvaluationBoard board;
  board.round_ = round;
  board.Add(CutStates(versions, roster));
  return board;
}

void EvaluationBoard::Take(WorkerId worker, Queue queue, size_t count, TimePoint expires,
                           FenceSource& fences, std::vector<fleet::EvaluationTask>& taken,
                           size_t of) {
  if (queue.value >= queues_.size()) return;
  Line& line = queues_[queue.value];
  std::vector<size_t>& held = held_[worker];
  next_expiry_ = std::min(next_expiry_, expires);
  uint64_t bytes = 0;
  for (; line.next < line.slots.size() && count > 0; ++line.next) {
    const size_t i = line.slots[line.next];
    Slot& slot = slots_[i];
    if (slot.state != State::kWaiting) continue;
    if (slot.of != of) return;  // the queue has the tasks of each model together
    bytes += AnswerBytes(slot);
    if (bytes > kMostAnswerBytes && !taken.empty()) return;
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

std::optional<size_t> EvaluationBoard::NextModel(Queue queue) const {
  if (waiting(queue) == 0) return std::nullopt;
  const Line& line = queues_[queue.value];
  for (size_t next = line.next; next < line.slots.size(); ++next) {
    const Slot& slot = slots_[line.slots[next]];
    if (slot.state == State::kWaiting) return slot.of;
  }
  return std::nullopt;
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
  training::MakeInfiniteBeyondLimit(slot->sums);  // a worker of 0.1.0 does not
  slot->choice = result.choice;
  AddCounts(result, *slot);
  slot->digest = result.digest;
  slot->task.states = {};
  ++finished_;
  return true;
}

uint64_t EvaluationBoard::AnswerBytes(const Slot& slot) const {
  const fleet::EvaluationTask& task = slot.task;
  const uint64_t rows = fleet::TakesAllRows(task.kind) ? rows_of_a_client_ : task.end - task.begin;
  return kBytesPerCount * std::min<uint64_t>(classes_.size(), rows * classes_.per_row());
}

void EvaluationBoard::AddCounts(const fleet::EvaluationResult& result, Slot& slot) {
  if (!classes_.any() || slot.task.kind == EvaluationKind::kStateDigest ||
      slot.task.kind == EvaluationKind::kCentralBackdoor || slot.of > 0)
    return;
  std::vector<double>& total = counts_[static_cast<size_t>(RowsOf(slot.task.kind, slot.heldout))];
  total.resize(classes_.size());
  training::SparseCounts counts{.at = result.counted, .count = {}};
  counts.count.assign(result.counts.begin(), result.counts.end());
  for (size_t i = 0; i < counts.at.size(); ++i) total[counts.at[i]] += counts.count[i];
  if (fleet::TakesAllRows(slot.task.kind))
    slot.values = classes_.Values(counts, result.sums.empty() ? 0 : result.sums[0]);
  if (slot.task.kind != EvaluationKind::kClientTest) return;
  if (slot.group.has_value()) group_counts_.Add(*slot.group, counts, classes_.size());
  if (models_ > 1) model_counts_.Add(slot.choice, counts, classes_.size());
}

std::optional<uint64_t> EvaluationBoard::NumberOf(WorkerId worker,
                                                  const fleet::EvaluationResult& result) const {
  if (Find(worker, result) == nullptr) return std::nullopt;
  return by_fence_.at(result.task.fence.counter);
}

std::vector<uint64_t> EvaluationBoard::Waiting(Queue queue) const {
  std::vector<uint64_t> waits;
  if (waiting(queue) == 0) return waits;
  for (const size_t i : queues_[queue.value].slots) {
    if (slots_[i].state == State::kWaiting) waits.push_back(i);
  }
  return waits;
}

std::vector<std::pair<uint64_t, std::optional<WorkerId>>> EvaluationBoard::Unfinished() const {
  std::vector<std::pair<uint64_t, std::optional<WorkerId>>> open;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kWaiting) open.emplace_back(i, std::nullopt);
    if (slots_[i].state == State::kLeased) open.emplace_back(i, slots_[i].worker);
  }
  return open;
}

void EvaluationBoard::GiveUp(std::span<const uint64_t> tasks) {
  for (const uint64_t number : tasks) {
    if (number >= slots_.size()) continue;
    Slot& slot = slots_[number];
    if (slot.state == State::kDone || slot.state == State::kGivenUp) continue;
    if (slot.state == State::kLeased) {
      by_fence_.erase(slot.task.fence.counter);
    } else {
      --queues_[slot.queue.value].waiting;
    }
    slot.state = State::kGivenUp;
    ++finished_;
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

std::vector<EvaluationSums::ClientSums> EvaluationBoard::ReportWithout(ModelWithout::Of of) const {
  std::vector<EvaluationSums::ClientSums> all;
  for (const ModelWithout& one : without_) all.push_back({.client = one.client, .sums = {}});
  std::vector<bool> whole(all.size(), true);
  for (const Slot& slot : slots_) {
    if (slot.of == 0) continue;
    if (slot.state == State::kGivenUp) whole[slot.of - 1] = false;
    training::AddTo(all[slot.of - 1].sums, slot.sums);
  }
  std::vector<EvaluationSums::ClientSums> known;
  for (size_t i = 0; i < all.size(); ++i) {
    if (whole[i] && without_[i].of == of) known.push_back(std::move(all[i]));
  }
  return known;
}

std::vector<ClientId> EvaluationBoard::WithoutTrainingLoss() const {
  std::vector<ClientId> without;
  std::optional<ClientId> last;  // tasks are by client
  size_t all = 0;
  for (const Slot& slot : slots_) {
    if (slot.task.kind != EvaluationKind::kClientTrain || slot.state != State::kDone) continue;
    if (last != slot.task.client) ++all;
    last = slot.task.client;
    const bool again = !without.empty() && without.back() == slot.task.client;
    if (!HasPossibleLoss(slot.sums) && !again) without.push_back(slot.task.client);
  }
  if (!MayBeLeftOut(without.size(), all)) without.clear();
  return without;
}

EvaluationSums EvaluationBoard::Report() const {
  EvaluationSums report{.round = round_};
  const std::vector<ClientId> without_loss = WithoutTrainingLoss();
  std::optional<ClientId> missing;  // the last one without some of its training rows
  report.without = ReportWithout(ModelWithout::Of::kRound);
  report.unlearned = ReportWithout(ModelWithout::Of::kRun);
  for (const Slot& slot : slots_) {
    if (slot.of > 0) continue;
    if (slot.state == State::kGivenUp) {
      const EvaluatedRows of = RowsOf(slot.task.kind, slot.heldout);
      report.without_states |= slot.task.kind == EvaluationKind::kStateDigest;
      report.without_central |= slot.queue == Central();
      if (slot.task.kind == EvaluationKind::kStateDigest || slot.queue == Central()) continue;
      report.given_up.push_back(slot.task.client);
      const bool again = of == EvaluatedRows::kTrain && missing == slot.task.client;
      if (!again) ++report.missing[static_cast<size_t>(of)];
      if (of == EvaluatedRows::kTrain) missing = slot.task.client;
      continue;
    }
    if (slot.task.kind == EvaluationKind::kStateDigest) {
      report.states.push_back(slot.digest);
      continue;
    }
    if (slot.task.kind == EvaluationKind::kCentralBackdoor) {
      training::AddTo(report.backdoor, slot.sums);
      continue;
    }
    const EvaluatedRows rows = RowsOf(slot.task.kind, slot.heldout);
    if (rows == EvaluatedRows::kTrain &&
        std::ranges::binary_search(without_loss, slot.task.client)) {
      report.uncounted[static_cast<size_t>(rows)] += slot.sums[0];
      continue;
    }
    if (IsOfClients(rows)) {
      report.Of(rows).push_back(
          {slot.task.client, slot.sums, slot.values, slot.choice, slot.group});
      continue;
    }
    training::AddTo(rows == EvaluatedRows::kCentral             ? report.central
                    : rows == EvaluatedRows::kCentralValidation ? report.validation
                                                                : report.train,
                    slot.sums);
    if (rows != EvaluatedRows::kCentral || groups_ == 1) continue;
    report.central_groups.resize(groups_);
    training::AddTo(report.central_groups[slot.task.begin / central_rows_], slot.sums);
  }
  report.missing[static_cast<size_t>(EvaluatedRows::kTrain)] += without_loss.size();
  for (size_t rows = 0; rows < kEvaluatedRows; ++rows)
    report.counts[rows] = training::SparseCounts::Of(counts_[rows]);
  report.group_counts = group_counts_.Report();
  report.model_counts = model_counts_.Report();
  if (report.without_central) {  // a part of the rows tells little of the model
    report.central.clear();
    report.central_groups.clear();
    report.validation.clear();
    report.backdoor.clear();
    for (const EvaluatedRows rows : {EvaluatedRows::kCentral, EvaluatedRows::kCentralValidation})
      report.counts[static_cast<size_t>(rows)] = {};
  }
  std::ranges::sort(report.given_up);
  report.given_up.erase(std::unique(report.given_up.begin(), report.given_up.end()),
                        report.given_up.end());
  return report;
}

}  // namespace macaw::server
