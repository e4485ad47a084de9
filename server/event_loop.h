#pragma once

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::server {

// The engine's one thread: tasks in the order posted, and a callback when a deadline passes.
// Thread-safe. Nothing polls: the thread sleeps until a task or the deadline.
class EventLoop {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  // `deadline` is asked after each batch of tasks; `on_deadline` runs when it has passed, `on_idle`
  // when there is nothing more to run. All on the loop's thread.
  EventLoop(absl::AnyInvocable<TimePoint()> deadline, absl::AnyInvocable<void()> on_deadline,
            absl::AnyInvocable<void()> on_idle);
  ~EventLoop();  // runs what was posted, then joins

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitIdle() ABSL_LOCKS_EXCLUDED(
      mutex_);  // until everything posted so far has run; not from the loop itself

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
