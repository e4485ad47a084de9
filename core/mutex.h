#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "core/clock.h"

namespace macaw {

// A mutex that waits for conditions, with the thread-safety annotations clang checks: one unlocks
// after changing the state, and whoever waits for that state looks again. A layer over the standard
// library rather than abseil's mutex, whose Debian build ThreadSanitizer cannot see into.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // Before the unlock: a waiter that sees what it waits for may destroy this object the moment it
    // is unlocked.
    if (waiting_ > 0) changed_.notify_all();
    mutex_.unlock();
  }

  // Blocks until `condition()` holds; it runs with the mutex held, any number of times.
  template <typename Condition>
  void Await(const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (condition()) return;
    Waiting waiting(*this);
    changed_.wait(waiting.lock, condition);
  }
  // Likewise, for so long at most; whether the condition held in the end.
  template <typename Condition>
  bool AwaitFor(Duration patience, const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (condition()) return true;
    Waiting waiting(*this);
    return changed_.wait_for(waiting.lock, patience, condition);
  }

 private:
  // Lends the held mutex to a condition variable and takes it back held. A waiter must not forget
  // others that wait: what it changed before waiting, they have to see.
  struct Waiting {
    explicit Waiting(Mutex& m) : mutex(m), lock(m.mutex_, std::adopt_lock) {
      ++mutex.waiting_;
      mutex.changed_.notify_all();
    }
    ~Waiting() {
      --mutex.waiting_;
      lock.release();
    }
    Mutex& mutex;
    std::unique_lock<std::mutex> lock;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Happens once; any thread may wait for it.
class Notification {
 public:
  void Notify() {
    MutexLock lock(&mutex_);
    happened_ = true;
  }
  void Wait() {
    MutexLock lock(&mutex_);
    mutex_.Await([this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return happened_; });
  }

 private:
  Mutex mutex_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace macaw
