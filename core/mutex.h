#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "core/clock.h"

namespace macaw {

// What one thread sleeps on until another sends it. Sent once; may be gone as soon as it is sent.
class WakeUp {
 public:
  void Send();
  void Wait();
  bool WaitUntil(TimePoint end);  // whether it was sent

 private:
  std::atomic<uint32_t> sent_ = 0;
};

// A mutex that waits for conditions, with the thread-safety annotations clang checks: one unlocks
// after changing the state, and whoever waits for that state goes on. Whoever unlocks looks for it,
// so that nobody is woken in vain: a conductor may wait for the end of work that thousands of short
// calls bring nearer. An unlock wakes one sleeper at most, the first in line, which wakes the next
// when it unlocks or sleeps again: of two that are woken for one piece of work, one finds it gone;
// and two that are woken for two pieces often end up on one core, the one that was idle when they
// were placed. (Who was woken in vain lines up anew.) The wake-up is sent behind the unlock: a
// sleeper that is given the waker's core could not go on while the waker holds the mutex without a
// core. A layer over the standard library rather than
// abseil's mutex, whose Debian build ThreadSanitizer cannot see into.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // Nothing of this object is touched behind the unlock: who saw what it waited for may destroy
    // it then.
    Waiter* const ready = TakeReady();
    mutex_.unlock();
    if (ready != nullptr) ready->wake_up.Send();
  }

  // Blocks until `condition()` holds; it runs with the mutex held, any number of times, on any
  // thread.
  template <typename Condition>
  void Await(const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    while (!Holds(condition)) {
      Waiter waiter = WaiterFor(condition);
      Enlist(waiter);
      waiter.wake_up.Wait();
      mutex_.lock();
    }
  }
  // Likewise, for so long at most; whether the condition held in the end.
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
      waiter.wake_up.Wait();  // taken just now: its waker still needs it
    }
    return true;
  }

 private:
  // One that sleeps, on its own stack, in the mutex's list. Who finds its condition true takes it
  // from the list and owes it a wake-up; until then it stays.
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
