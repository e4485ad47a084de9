#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "core/clock.h"

namespace macaw {

// A one-time signal that one thread waits for. The waiting thread may destroy it as soon as it was
// sent.
class WakeUp {
 public:
  void Send();
  void Wait();
  bool WaitUntil(TimePoint end);  // false on timeout

 private:
  std::atomic<uint32_t> sent_ = 0;
};

// A mutex with conditions: Await(condition) blocks until the condition holds. Annotated for clang's
// thread-safety analysis.
//
// The thread that unlocks evaluates the conditions of the waiting threads and wakes the first one
// whose condition holds. So a thread is not woken while its condition is false: one that waits for
// the end of a round can sleep while thousands of short calls change the state.
//
// An unlock wakes at most one waiter, which wakes the next one when it unlocks or waits again. Two
// threads woken at once for one item would compete for it, and two woken for two items often run on
// the same core. A waiter whose condition has become false again goes to the end of the queue. The
// wake-up is sent after the unlock, because the woken thread may be put on this core and could not
// run while the mutex is held.
//
// Built on the standard library and not on absl::Mutex, because ThreadSanitizer cannot see into
// Debian's build of abseil.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // After the unlock nothing of this object may be touched: a thread that saw its condition hold
    // may destroy it.
    Waiter* const ready = TakeReady();
    mutex_.unlock();
    if (ready != nullptr) ready->wake_up.Send();
  }

  // Blocks until `condition()` holds. The condition runs with the mutex held, any number of times,
  // on any thread.
  template <typename Condition>
  void Await(const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    while (!Holds(condition)) {
      Waiter waiter = WaiterFor(condition);
      Enlist(waiter);
      waiter.wake_up.Wait();
      mutex_.lock();
    }
  }
  // The same with a timeout. Returns whether the condition held in the end.
  template <typename Condition>
  bool AwaitFor(Duration patience, const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    const TimePoint end = SteadyClock().Now() + patience;
    while (!Holds(condition)) {
      Waiter waiter = WaiterFor(condition);
      Enlist(waiter);
      const bool sent = waiter.wake_up.WaitUntil(end);
      mutex_.lock();
      if (sent) continue;
      if (Remove(waiter)) return Holds(condition);
      waiter.wake_up.Wait();  // another thread has just taken it out of the list and will signal it
    }
    return true;
  }

 private:
  // A waiting thread, stored on its own stack and linked in the mutex's list. The thread that finds
  // its condition true takes it out of the list and must then signal it.
  struct Waiter {
    const void* condition;
    bool (*holds)(const void*);
    Waiter* next = nullptr;
    WakeUp wake_up = {};
  };

  // clang cannot tell that the mutex a condition names is this one.
  template <typename Condition>
  static bool Holds(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return condition();
  }
  template <typename Condition>
  static Waiter WaiterFor(const Condition& condition) {
    return {.condition = &condition,
            .holds = [](const void* c) { return Holds(*static_cast<const Condition*>(c)); }};
  }

  // Unlocks. What this thread changed before it sleeps, the others have to see.
  void Enlist(Waiter& waiter) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Waiter* const ready = TakeReady();
    Waiter** end = &first_;
    while (*end != nullptr) end = &(*end)->next;
    *end = &waiter;
    mutex_.unlock();
    if (ready != nullptr) ready->wake_up.Send();
  }
  // False if it has been taken.
  bool Remove(const Waiter& waiter) {
    for (Waiter** place = &first_; *place != nullptr; place = &(*place)->next) {
      if (*place != &waiter) continue;
      *place = waiter.next;
      return true;
    }
    return false;
  }
  // The first that may go on; null: nobody.
  Waiter* TakeReady() {
    for (Waiter** place = &first_; *place != nullptr; place = &(*place)->next) {
      Waiter* const waiter = *place;
      if (!waiter->holds(waiter->condition)) continue;
      *place = waiter->next;
      return waiter;
    }
    return nullptr;
  }

  std::mutex mutex_;
  Waiter* first_ = nullptr;  // in line
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
