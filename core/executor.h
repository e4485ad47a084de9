#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "core/mutex.h"

namespace macaw {

// Threads for work that must not run on an RPC thread or the engine's: adding parts, writing files.
// Tasks start in the order posted, urgent ones before all others; with one thread it is a strand.
// Thread-safe. The destructor runs what was posted, then joins.
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
      ABSL_LOCKS_EXCLUDED(mutex_);  // until everything posted so far has run and is gone

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string name_;
  Mutex mutex_;
  std::deque<Task> urgent_ ABSL_GUARDED_BY(mutex_);
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

// Names the calling thread in debuggers and profilers (15 characters are kept).
void NameThisThread(const std::string& name);

}  // namespace macaw
