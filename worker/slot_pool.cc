#include "worker/slot_pool.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/clock.h"
#include "core/executor.h"
#include "core/status.h"
#include "worker/lasting_fault.h"

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
  MACAW_ASSIGN_OR_RETURN(const uint32_t lanes,
                         context.backends->LanesFor(TrainerSetupFor(context, dataset), slots));
  auto pool = std::unique_ptr<SlotPool>(
      new SlotPool(context, dataset, slots, lanes, std::move(emulated), marker));
  absl::MutexLock lock(&pool->mutex_);
  const auto all_ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(pool->mutex_) {
    return pool->ready_ == lanes;
  };
  pool->mutex_.Await(absl::Condition(&all_ready));
  if (!pool->error_.ok()) {
    const absl::Status error = pool->error_;
    return error;
  }
  MACAW_RETURN_IF_ERROR(pool->MakeCollective());
  return pool;
}

SlotPool::SlotPool(const RunContext& context, const data::Dataset& dataset, uint32_t slots,
                   uint32_t lanes, EmulatedSlots emulated, RunningMarker& marker)
    : context_(context),
      dataset_(dataset),
      slots_(slots),
      emulated_(std::move(emulated)),
      marker_(marker),
      work_(lanes),
      lanes_(lanes) {
  threads_.reserve(lanes);
  for (uint32_t i = 0; i < lanes; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

absl::Status SlotPool::MakeCollective() {
  std::vector<device::Device*> devices;
  for (std::optional<Lane>& lane : lanes_) {
    device::Device* const device = lane->sum().device();
    if (device != nullptr && std::ranges::find(devices, device) == devices.end())
      devices.push_back(device);
  }
  if (devices.size() < 2) return absl::OkStatus();
  auto collective =
      context_.backends->MakeCollective(TrainerSetupFor(context_, dataset_), std::move(devices));
  if (!collective.ok()) return DeviceFault(collective.status());
  collective_ = *std::move(collective);
  return absl::OkStatus();
}

SlotPool::~SlotPool() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    queue_.Clear();
    GiveUp(true);
  }
  for (std::thread& thread : threads_) thread.join();
}

void SlotPool::Enqueue(std::shared_ptr<const PhaseContext> phase,
                       const std::vector<fleet::Assignment>& assignments, TimePoint leased) {
  absl::MutexLock lock(&mutex_);
  phase_ = phase;
  for (const fleet::Assignment& assignment : assignments) {
    if (assignment.staleness != phase->staleness) continue;
    held_.push_back({assignment.client, assignment.fence});
    queue_.Push(TrainItem{phase, {assignment, leased}});
  }
}

void SlotPool::Enqueue(std::shared_ptr<const EvaluationContext> evaluation,
                       const std::vector<fleet::EvaluationTask>& tasks) {
  absl::MutexLock lock(&mutex_);
  for (const fleet::EvaluationTask& task : tasks) queue_.Push(EvaluateItem{evaluation, task});
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
    return interrupted_ || (queue_.empty() && busy_lanes_ < lanes_.size());
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

bool SlotPool::WaitIdleOrTrained() {
  absl::MutexLock lock(&mutex_);
  const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return interrupted_ || !trained_.empty() || (queue_.empty() && running_ == 0);
  };
  mutex_.Await(absl::Condition(&due));
  return !interrupted_;
}

std::vector<Attempt> SlotPool::Trained() const {
  absl::MutexLock lock(&mutex_);
  return trained_;
}

void SlotPool::Arrive(const Attempt& attempt, std::shared_ptr<const PhaseContext> round) {
  absl::MutexLock lock(&mutex_);
  phase_ = std::move(round);
  if (phase_ == nullptr) std::erase(held_, attempt);
  std::erase(trained_, attempt);
}

Arrival SlotPool::Await(const Attempt& attempt) {
  const TimePoint since = SteadyClock().Now();
  absl::MutexLock lock(&mutex_);
  if (giving_up_) return {};
  trained_.push_back(attempt);
  const auto due = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return giving_up_ || std::ranges::find(trained_, attempt) == trained_.end();
  };
  mutex_.Await(absl::Condition(&due));
  if (std::erase(trained_, attempt) > 0) return {};  // nobody has said anything
  return {.round = phase_, .waited = SteadyClock().Now() - since};
}

void SlotPool::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
}

absl::StatusOr<std::optional<aggregation::ExactSum>> SlotPool::CollectDeviceSums(
    const PhaseContext& phase) {
  std::vector<LaneSum*> sums;
  for (std::optional<Lane>& lane : lanes_) {
    // The collective needs a sum of each device, also of one that trained nobody.
    if (collective_ != nullptr) MACAW_RETURN_IF_ERROR(lane->OpenSum(phase));
    sums.push_back(&lane->sum());
  }
  return LaneSum::Collect(sums, collective_.get());
}

absl::StatusOr<Harvest> SlotPool::TakeHarvest() {
  Harvest harvest;
  {
    absl::MutexLock lock(&mutex_);
    harvest.phase = std::exchange(phase_, nullptr);
    harvest.evaluations = std::exchange(evaluations_, {});
  }
  // The lanes wait for work, which only the caller's thread brings.
  if (harvest.phase != nullptr && !LeaveOneOutDue(context_.run.evaluation, harvest.phase->round)) {
    auto on_devices = CollectDeviceSums(*harvest.phase);
    if (!on_devices.ok()) return DeviceFault(on_devices.status());
    if (on_devices->has_value()) harvest.sums.push_back(**std::move(on_devices));
  }
  for (std::optional<Lane>& lane : lanes_) {
    LaneResult result = lane->TakeResult();
    std::move(result.included.begin(), result.included.end(), std::back_inserter(harvest.included));
    std::move(result.left_out.begin(), result.left_out.end(), std::back_inserter(harvest.left_out));
    std::move(result.alone.begin(), result.alone.end(), std::back_inserter(harvest.alone));
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

void SlotPool::GiveUp(bool give_up) {
  giving_up_ = give_up;
  for (WorkCounter& lane : work_) lane.GiveUp(give_up);
}

void SlotPool::Clear() {
  absl::MutexLock lock(&mutex_);
  queue_.Clear();
  GiveUp(true);
  const auto idle = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
  mutex_.Await(absl::Condition(&idle));
  GiveUp(false);
  interrupted_ = false;
  phase_ = nullptr;
  held_.clear();
  evaluations_.clear();
  for (std::optional<Lane>& lane : lanes_) lane->TakeResult();
}

void SlotPool::Drop(const std::vector<Attempt>& attempts) {
  absl::MutexLock lock(&mutex_);
  for (const Attempt& attempt : attempts) {
    if (queue_.Remove(attempt)) std::erase(held_, attempt);
  }
}

Unbegun SlotPool::DropUnbegun() {
  absl::MutexLock lock(&mutex_);
  Unbegun dropped = queue_.TakeAll();
  for (const Attempt& attempt : dropped.attempts) std::erase(held_, attempt);
  return dropped;
}

std::vector<Attempt> SlotPool::Queued() const {
  absl::MutexLock lock(&mutex_);
  return queue_.Clients();
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
  for (const WorkCounter& lane : work_) done += lane.done();
  return done;
}

uint32_t SlotPool::idle() const {
  absl::MutexLock lock(&mutex_);
  const size_t free = slots_ - busy_slots_;
  return static_cast<uint32_t>(free - std::min(free, queue_.size()));
}

size_t SlotPool::QueueFor(double seconds) const {
  absl::MutexLock lock(&mutex_);
  if (!(mean_seconds_ > 0)) return 0;
  const double clients = seconds / mean_seconds_ * slots_;
  return static_cast<size_t>(std::ceil(std::min(clients, kMostAhead)));
}

std::vector<WorkItem> SlotPool::NextTurn(uint32_t index) {
  return queue_.TakeTurn(lanes_.size() - busy_lanes_,
                         std::min<size_t>(SlotsOf(index), lanes_[index]->width()));
}

void SlotPool::Loop(uint32_t index) {
  NameThisThread(absl::StrCat("slot-", FirstSlotOf(index)));
  {
    absl::StatusOr<Lane> lane = Lane::Make(context_, dataset_, work_[index], index);
    absl::MutexLock lock(&mutex_);
    ++ready_;
    if (!lane.ok()) {
      if (error_.ok()) error_ = lane.status();
      return;
    }
    lanes_[index] = *std::move(lane);
  }
  // After an error nothing is begun: the session ends.
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closing_ || (!queue_.empty() && error_.ok());
  };
  std::vector<WorkItem> turn;
  TimePoint began{};
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (!turn.empty()) {
        running_ -= turn.size();
        --busy_lanes_;
        busy_slots_ -= SlotsOf(index);
        if (std::holds_alternative<TrainItem>(turn.front())) {
          const double took = ToSeconds(SteadyClock().Now() - began);
          mean_seconds_ += (mean_seconds_ > 0 ? kItemMemory : 1) * (took - mean_seconds_);
        }
        turn.clear();
      }
      mutex_.Await(absl::Condition(&due));
      if (closing_) return;
      turn = NextTurn(index);
      running_ += turn.size();
      ++busy_lanes_;
      busy_slots_ += SlotsOf(index);
    }
    began = SteadyClock().Now();
    RunTurn(index, turn);
  }
}

void SlotPool::RunTurn(uint32_t index, std::span<const WorkItem> turn) {
  if (const auto* evaluate = std::get_if<EvaluateItem>(&turn.front())) {
    Evaluate(index, *evaluate);
  } else {
    Train(index, turn);
  }
}

void SlotPool::Train(uint32_t index, std::span<const WorkItem> turn) {
  const PhaseContext& phase = *std::get<TrainItem>(turn.front()).phase;
  std::vector<LeasedClient> clients;
  std::vector<Attempt> attempts;
  for (const WorkItem& item : turn) {
    clients.push_back(std::get<TrainItem>(item).client);
    attempts.push_back(std::get<TrainItem>(item).attempt());
  }
  const TimePoint start = SteadyClock().Now();
  const uint32_t first = FirstSlotOf(index);
  for (uint32_t i = 0; i < attempts.size(); ++i) marker_.Started(first + i, attempts[i]);
  Lane& lane = *lanes_[index];
  absl::Status trained;
  if (phase.arrives) {
    trained = lane.TrainAndArrive(phase, first, clients.front(), [&](const Attempt& attempt) {
      Emulate(index, phase, clients, SteadyClock().Now() - start);
      return Await(attempt);
    });
  } else {
    trained = lane.Train(phase, first, clients);
    Emulate(index, phase, clients, SteadyClock().Now() - start);
  }
  for (uint32_t i = 0; i < attempts.size(); ++i) marker_.Finished(first + i);
  if (!trained.ok()) return Fail(trained);
  absl::MutexLock lock(&mutex_);
  for (const Attempt& attempt : attempts) {
    if (const fleet::LeftOut* left = lane.LeftOutOf(attempt)) left_out_.push_back(*left);
    if (left_out_.size() > kMostLeftOut) left_out_.pop_front();
  }
}

void SlotPool::Evaluate(uint32_t index, const EvaluateItem& item) {
  absl::StatusOr<fleet::EvaluationResult> result =
      lanes_[index]->Evaluate(*item.evaluation, item.task);
  if (!result.ok()) {
    const std::string what = absl::StrCat("evaluation after round ", item.evaluation->round.value,
                                          ": ", result.status().message());
    if (IsLastingFault(result.status())) return Fail(LastingFault(what));
    if (IsLostDevice(result.status())) return Fail(LostDevice(what));
    return Fail(absl::Status(result.status().code(), what));
  }
  absl::MutexLock lock(&mutex_);
  evaluations_.push_back(*std::move(result));
}

void SlotPool::Emulate(uint32_t index, const PhaseContext& phase,
                       std::span<const LeasedClient> clients, Duration took) {
  if (!emulated_.config.any()) return;
  std::vector<double> longer;
  for (const LeasedClient& client : clients) {
    const auto slot = static_cast<uint32_t>(FirstSlotOf(index) + longer.size());
    longer.push_back(emulated_.Longer(slot, context_.run.rounds, phase.round,
                                      client.assignment.client, ToSeconds(took)));
  }
  // Emulated slow hardware counts as working, and the server should see that.
  const double longest = std::ranges::max(longer);
  const TimePoint end = SteadyClock().Now() + FromSeconds(longest);
  for (TimePoint now = end - FromSeconds(longest); now < end && !work_[index].given_up();
       now = SteadyClock().Now()) {
    std::this_thread::sleep_for(std::min<Duration>(end - now, kEmulatedPiece));
    work_[index].Count();
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    if (!(longer[i] > 0)) continue;
    const fleet::Assignment& assignment = clients[i].assignment;
    lanes_[index]->Lengthen({assignment.client, assignment.fence}, longer[i]);
  }
}

void SlotPool::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (giving_up_) return;  // nobody waits for what failed
  if (error_.ok()) error_ = status;
  interrupted_ = true;
}

}  // namespace macaw::worker
