#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "core/clock.h"

namespace macaw {

// A mutex that waits for conditions, with the thread-safety annotations clang checks: one unlocks
// after changing the state, and whoever waits for that state goes on. Whoever unlocks looks for it,
// so that nobody is woken in vain: a conductor may wait for the end of work that thousands of short
// calls bring nearer. A layer over the standard library rather than abseil's mutex, whose Debian
// build ThreadSanitizer cannot see into.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // Before the unlock: a waiter that sees what it waits for may destroy this object the moment it
    // is unlocked.
    if (first_ != nullptr) WakeReady();
    mutex_.unlock();
  }

  // Blocks until `condition()` holds; it runs with the mutex held, any number of times, on any
  // thread.
  template <typename Condition>
  void Await(const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (Holds(condition)) return;
    Waiter waiter(*this, condition);
    while (!Holds(condition)) waiter.Sleep();
  }
  // Likewise, for so long at most; whether the condition held in the end.
  template <typename Condition>
  bool AwaitFor(Duration patience, const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (Holds(condition)) return true;
    Waiter waiter(*this, condition);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!Holds(condition)) {
      if (!waiter.SleepUntil(end)) return Holds(condition);
    }
    return true;
  }

 private:
  // clang cannot tell that the mutex a condition names is this one.
  template <typename Condition>
  static bool Holds(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return condition();
  }

  // One that waits, on its own stack, in the mutex's list. Lends the held mutex to a condition
  // variable of its own and takes it back held.
  class Waiter {
   public:
    template <typename Condition>
    Waiter(Mutex& mutex, const Condition& condition)
        : mutex_(mutex),
          lock_(mutex.mutex_, std::adopt_lock),
          condition_(&condition),
          holds_([](const void* c) { return Holds(*static_cast<const Condition*>(c)); }),
          next_(mutex.first_) {
      mutex.first_ = this;
    }
    ~Waiter() {
      Waiter** place = &mutex_.first_;
      while (*place != this) place = &(*place)->next_;
      *place = next_;
      lock_.release();
    }
    // What this thread changed before it sleeps, the others have to see.
    void Sleep() {
      mutex_.WakeReady();
      woken_ = false;
      changed_.wait(lock_);
    }
    bool SleepUntil(std::chrono::steady_clock::time_point end) {
      mutex_.WakeReady();
      woken_ = false;
      return changed_.wait_until(lock_, end) == std::cv_status::no_timeout;
    }
    void WakeIfReady() {
      if (woken_ || !holds_(condition_)) return;
      woken_ = true;
      changed_.notify_one();
    }
    Waiter* next() const { return next_; }

   private:
    Mutex& mutex_;
    std::unique_lock<std::mutex> lock_;
    std::condition_variable changed_;
    const void* const condition_;
    bool (*const holds_)(const void*);
    Waiter* next_;
    bool woken_ = true;  // or not yet asleep
  };

  void WakeReady() {
    for (Waiter* waiter = first_; waiter != nullptr; waiter = waiter->next()) waiter->WakeIfReady();
  }

  std::mutex mutex_;
  Waiter* first_ = nullptr;
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
