#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace macaw {

// Threads for work that must not run on an RPC thread or on the engine's thread: merging sums,
// writing files. Tasks start in the order in which they were posted, urgent ones before all others;
// with one thread they run one after another. Thread-safe. The destructor runs all posted tasks,
// then joins the threads.
class Executor {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  Executor(std::string name, size_t threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void PostUrgent(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitIdle()
      ABSL_LOCKS_EXCLUDED(mutex_);  // until all tasks posted so far have run and are destroyed

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string name_;
  absl::Mutex mutex_;
  std::deque<Task> urgent_ ABSL_GUARDED_BY(mutex_);
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

// Sets the calling thread's name in debuggers and profilers (only the first 15 characters).
void NameThisThread(const std::string& name);

}  // namespace macaw
