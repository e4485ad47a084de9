#include "server/event_loop.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/executor.h"

namespace macaw::server {

EventLoop::EventLoop(absl::AnyInvocable<TimePoint()> deadline,
                     absl::AnyInvocable<void()> on_deadline, absl::AnyInvocable<void()> on_idle)
    : deadline_(std::move(deadline)),
      on_deadline_(std::move(on_deadline)),
      on_idle_(std::move(on_idle)),
      thread_([this] { Loop(); }) {}

EventLoop::~EventLoop() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
}

void EventLoop::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

void EventLoop::WaitIdle() {
  absl::Notification reached;
  Post([&reached] { reached.Notify(); });
  reached.WaitForNotification();
}

bool EventLoop::Idle() {
  absl::MutexLock lock(&mutex_);
  return tasks_.empty();
}

void EventLoop::Loop() {
  NameThisThread("engine");
  const auto ready = [this]()
                         ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return closing_ || !tasks_.empty(); };
  while (true) {
    const TimePoint deadline = deadline_();
    if (Idle()) on_idle_();
    std::deque<Task> batch;
    {
      absl::MutexLock lock(&mutex_);
      const TimePoint now = SteadyClock().Now();
      if (deadline == TimePoint::max()) {
        mutex_.Await(absl::Condition(&ready));
      } else {
        mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(deadline - now));
      }
      if (closing_ && tasks_.empty()) return;
      batch.swap(tasks_);
    }
    for (Task& task : batch) std::move(task)();
    if (deadline_() <= SteadyClock().Now()) on_deadline_();
  }
}

}  // namespace macaw::server
