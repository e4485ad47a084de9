#include "worker/slot_pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clock.h"
#include "core/executor.h"
#include "core/status.h"

namespace macaw::worker {
namespace {

constexpr double kItemMemory = 0.05;  // weight of the newest item in the mean
constexpr double kMostAhead = 4096;
constexpr size_t kMostLeftOut = 4;  // told ahead; the part tells all
constexpr Duration kEmulatedPiece =
    std::chrono::milliseconds(100);  // of work, in the server's eyes

}  // namespace

absl::StatusOr<std::unique_ptr<SlotPool>> SlotPool::Start(const RunContext& context,
                                                          const data::Dataset& dataset,
                                                          uint32_t slots, EmulatedSlots emulated,
                                                          RunningMarker& marker) {
  auto pool =
      std::unique_ptr<SlotPool>(new SlotPool(context, dataset, slots, std::move(emulated), marker));
  absl::MutexLock lock(&pool->mutex_);
  const auto all_ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(pool->mutex_) {
    return pool->ready_ == slots;
  };
  pool->mutex_.Await(absl::Condition(&all_ready));
  if (!pool->error_.ok()) {
    const absl::Status error = pool->error_;
    return error;
  }
  return pool;
}

SlotPool::SlotPool(const RunContext& context, const data::Dataset& dataset, uint32_t slots,
                   EmulatedSlots emulated, RunningMarker& marker)
    : context_(context),
      dataset_(dataset),
      emulated_(std::move(emulated)),
      marker_(marker),
      work_(slots),
      slots_(slots) {
  threads_.reserve(slots);
  for (uint32_t i = 0; i < slots; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

SlotPool::~SlotPool() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    queue_.clear();
  }
  for (std::thread& thread : threads_) thread.join();
}

void SlotPool::Enqueue(std::shared_ptr<const PhaseContext> phase,
                       const std::vector<fleet::Assignment>& assignments, TimePoint leased) {
  absl::MutexLock lock(&mutex_);
  phase_ = phase;
  for (const fleet::Assignment& assignment : assignments) {
    held_.push_back({assignment.client, assignment.fence});
    queue_.emplace_back(TrainItem{phase, assignment, leased});
  }
}

void SlotPool::Enqueue(std::shared_ptr<const EvaluationContext> evaluation,
                       const std::vector<fleet::EvaluationTask>& tasks) {
  absl::MutexLock lock(&mutex_);
  for (const fleet::EvaluationTask& task : tasks)
    queue_.emplace_back(EvaluateItem{evaluation, task});
}

bool SlotPool::WaitForQueueBelow(size_t low) {
  absl::MutexLock lock(&mutex_);
  const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return interrupted_ || queue_.size() <= low;
  };
  mutex_.Await(absl::Condition(&due));
  return !interrupted_;
}

bool SlotPool::WaitForIdleSlot() {
  absl::MutexLock lock(&mutex_);
  const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return interrupted_ || (queue_.empty() && running_ < slots_.size());
  };
  mutex_.Await(absl::Condition(&due));
  return !interrupted_;
}

bool SlotPool::WaitIdle() {
  absl::MutexLock lock(&mutex_);
  const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return interrupted_ || (queue_.empty() && running_ == 0);
  };
  mutex_.Await(absl::Condition(&due));
  return !interrupted_;
}

void SlotPool::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
}

Harvest SlotPool::TakeHarvest() {
  absl::MutexLock lock(&mutex_);
  Harvest harvest;
  harvest.phase = std::exchange(phase_, nullptr);
  harvest.evaluations = std::exchange(evaluations_, {});
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    SlotResult result = slots_[index]->TakeResult();
    for (fleet::ClientRecord& record : result.included) record.slot = index;
    std::move(result.included.begin(), result.included.end(), std::back_inserter(harvest.included));
    std::move(result.left_out.begin(), result.left_out.end(), std::back_inserter(harvest.left_out));
    if (result.sum.has_value() && result.sum->clients() > 0)
      harvest.sums.push_back(*std::move(result.sum));
  }
  return harvest;
}

void SlotPool::Settle() {
  absl::MutexLock lock(&mutex_);
  held_.clear();
}

absl::Status SlotPool::error() const {
  absl::MutexLock lock(&mutex_);
  return error_;
}

void SlotPool::Clear() {
  absl::MutexLock lock(&mutex_);
  queue_.clear();
  const auto idle = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
  mutex_.Await(absl::Condition(&idle));
  interrupted_ = false;
  phase_ = nullptr;
  held_.clear();
  evaluations_.clear();
  for (std::optional<Slot>& slot : slots_) slot->TakeResult();
}

void SlotPool::Drop(const std::vector<Attempt>& attempts) {
  absl::MutexLock lock(&mutex_);
  for (const Attempt& attempt : attempts) {
    const size_t before = queue_.size();
    std::erase_if(queue_, [&](const Item& item) {
      const auto* train = std::get_if<TrainItem>(&item);
      return train != nullptr && train->assignment.fence == attempt.fence;
    });
    if (queue_.size() < before) std::erase(held_, attempt);
  }
}

Unbegun SlotPool::DropUnbegun() {
  absl::MutexLock lock(&mutex_);
  Unbegun dropped;
  for (const Item& item : std::exchange(queue_, {})) {
    if (const auto* train = std::get_if<TrainItem>(&item)) {
      dropped.attempts.push_back({train->assignment.client, train->assignment.fence});
      std::erase(held_, dropped.attempts.back());
    } else {
      dropped.tasks.push_back(std::get<EvaluateItem>(item).task.fence);
    }
  }
  return dropped;
}

std::vector<Attempt> SlotPool::Queued() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Attempt> queued;
  for (const Item& item : queue_) {
    const auto* train = std::get_if<TrainItem>(&item);
    if (train != nullptr) queued.push_back({train->assignment.client, train->assignment.fence});
  }
  return queued;
}

std::vector<fleet::LeftOut> SlotPool::TakeLeftOut() {
  absl::MutexLock lock(&mutex_);
  std::vector<fleet::LeftOut> taken(left_out_.begin(), left_out_.end());
  left_out_.clear();
  return taken;
}

size_t SlotPool::held() const {
  absl::MutexLock lock(&mutex_);
  return held_.size();
}

uint64_t SlotPool::work_done() const {
  uint64_t done = 0;
  for (const WorkCounter& slot : work_) done += slot.done();
  return done;
}

uint32_t SlotPool::idle() const {
  absl::MutexLock lock(&mutex_);
  const size_t busy = std::min(slots_.size(), running_ + queue_.size());
  return static_cast<uint32_t>(slots_.size() - busy);
}

size_t SlotPool::QueueFor(double seconds) const {
  absl::MutexLock lock(&mutex_);
  if (!(mean_seconds_ > 0)) return 0;
  const double clients = seconds / mean_seconds_ * static_cast<double>(slots_.size());
  return static_cast<size_t>(std::ceil(std::min(clients, kMostAhead)));
}

void SlotPool::Loop(uint32_t index) {
  NameThisThread(absl::StrCat("slot-", index));
  {
    absl::StatusOr<Slot> slot = Slot::Make(context_, dataset_, work_[index], index);
    absl::MutexLock lock(&mutex_);
    if (slot.ok()) {
      slots_[index] = *std::move(slot);
    } else if (error_.ok()) {
      error_ = slot.status();
    }
    ++ready_;
    if (!slot.ok()) return;
  }
  const auto due = [this]()
                       ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return closing_ || !queue_.empty(); };
  std::optional<Item> item;
  TimePoint began{};
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (item.has_value()) {
        --running_;
        if (std::holds_alternative<TrainItem>(*item)) {
          const double took = ToSeconds(SteadyClock().Now() - began);
          mean_seconds_ += (mean_seconds_ > 0 ? kItemMemory : 1) * (took - mean_seconds_);
        }
        item.reset();
      }
      mutex_.Await(absl::Condition(&due));
      if (closing_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
    }
    began = SteadyClock().Now();
    RunItem(index, *slots_[index], *item);
  }
}

void SlotPool::Emulate(uint32_t index, Slot& slot, const TrainItem& train, Duration took) {
  if (!emulated_.config.any()) return;
  const Round round = train.phase->round;
  const double factor = EmulatedSlowdown(emulated_.config,
                                         {.slot = emulated_.first_slot + index,
                                          .slots = emulated_.run_slots,
                                          .rounds = context_.run.rounds},
                                         round);
  const double longer = ToSeconds(took) * (factor - 1) +
                        EmulatedPause(emulated_.config, round, train.assignment.client);
  if (!(longer > 0)) return;
  // Emulated slow hardware counts as working, and the server should see that.
  const TimePoint end = SteadyClock().Now() + FromSeconds(longer);
  for (TimePoint now = end - FromSeconds(longer); now < end; now = SteadyClock().Now()) {
    std::this_thread::sleep_for(std::min<Duration>(end - now, kEmulatedPiece));
    work_[index].Count();
  }
  slot.Lengthen({train.assignment.client, train.assignment.fence}, longer);
}

void SlotPool::RunItem(uint32_t index, Slot& slot, const Item& item) {
  if (const auto* train = std::get_if<TrainItem>(&item)) {
    const TimePoint start = SteadyClock().Now();
    marker_.Started(index, {train->assignment.client, train->assignment.fence});
    const absl::Status trained = slot.Train(*train->phase, train->assignment, train->leased);
    Emulate(index, slot, *train, SteadyClock().Now() - start);
    marker_.Finished(index);
    if (!trained.ok()) return Fail(trained);
    if (const fleet::LeftOut* left = slot.LeftOutOf(train->assignment)) {
      absl::MutexLock lock(&mutex_);
      left_out_.push_back(*left);
      if (left_out_.size() > kMostLeftOut) left_out_.pop_front();
    }
    return;
  }
  const auto& evaluate = std::get<EvaluateItem>(item);
  absl::StatusOr<fleet::EvaluationResult> result =
      slot.Evaluate(*evaluate.evaluation, evaluate.task);
  if (!result.ok()) {
    return Fail(Annotate(result.status(), absl::StrCat("evaluation after round ",
                                                       evaluate.evaluation->round.value)));
  }
  absl::MutexLock lock(&mutex_);
  evaluations_.push_back(*std::move(result));
}

void SlotPool::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (error_.ok()) error_ = status;
  interrupted_ = true;
}

}  // namespace macaw::worker
