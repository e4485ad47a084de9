#pragma once

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::server {

// The engine's one thread. Runs tasks in the order posted, and a callback when a deadline passes.
// The thread sleeps until the next task or the deadline; it never polls. Thread-safe.
class EventLoop {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  // `deadline` is called after each batch of tasks. `on_deadline` is called when that deadline has
  // passed, `on_idle` when there are no more tasks. All are called on the loop's thread.
  EventLoop(absl::AnyInvocable<TimePoint()> deadline, absl::AnyInvocable<void()> on_deadline,
            absl::AnyInvocable<void()> on_idle);
  ~EventLoop();  // runs the posted tasks, then joins the thread

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitIdle() ABSL_LOCKS_EXCLUDED(
      mutex_);  // blocks until all tasks posted so far have run; not to be called on the loop

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Idle() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::AnyInvocable<TimePoint()> deadline_;
  absl::AnyInvocable<void()> on_deadline_;
  absl::AnyInvocable<void()> on_idle_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace macaw::server
