// Compiled into ThreadSanitizer's build only (see CMakeLists.txt). Debian's abseil is not
// instrumented, so ThreadSanitizer would see no order in what absl::Mutex guards and report each
// use as a race. These definitions stand before the shared library's: they tell ThreadSanitizer
// what happens and call the library.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// The library's function. Its mangled name is given without the namespaces: `start` is "_ZN", or
// "_ZNK" for a const method.
template <typename Function>
Function* Library(const char* mangled, const char* start = "_ZN") {
  constexpr char kInline[] = ABSL_INTERNAL_TOKEN_STR(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const std::string name =
      std::string(start) + "4absl" + std::to_string(std::strlen(kInline)) + kInline + mangled;
  void* const found = dlsym(RTLD_NEXT, name.c_str());
  if (found == nullptr) std::abort();  // abseil was renamed or linked statically
  return reinterpret_cast<Function*>(found);
}

}  // namespace

// ThreadSanitizer ignores what happens between pre and post, so it does not mind that an unlocking
// thread evaluates the conditions of others.
void Mutex::Lock() {
  static auto* const lock = Library<void(Mutex*)>("5Mutex4LockEv");
  __tsan_mutex_pre_lock(this, 0);
  lock(this);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::TryLock() {
  static auto* const try_lock = Library<bool(Mutex*)>("5Mutex7TryLockEv");
  __tsan_mutex_pre_lock(this, __tsan_mutex_try_lock);
  const bool locked = try_lock(this);
  __tsan_mutex_post_lock(this, __tsan_mutex_try_lock | (locked ? 0U : __tsan_mutex_try_lock_failed),
                         0);
  return locked;
}

// The library's notifications lock with these three.
void Mutex::LockWhen(const Condition& condition) {
  static auto* const lock =
      Library<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  __tsan_mutex_pre_lock(this, 0);
  lock(this, condition);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const lock = Library<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  __tsan_mutex_pre_lock(this, 0);
  const bool holds = lock(this, condition, timeout);
  __tsan_mutex_post_lock(this, 0, 0);
  return holds;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static auto* const lock = Library<bool(Mutex*, const Condition&, Time)>(
      "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  __tsan_mutex_pre_lock(this, 0);
  const bool holds = lock(this, condition, deadline);
  __tsan_mutex_post_lock(this, 0, 0);
  return holds;
}

void Mutex::Unlock() {
  static auto* const unlock = Library<void(Mutex*)>("5Mutex6UnlockEv");
  __tsan_mutex_pre_unlock(this, 0);
  unlock(this);
  __tsan_mutex_post_unlock(this, 0);
}

void Mutex::Await(const Condition& condition) {
  static auto* const await =
      Library<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  if (condition.Eval()) return;
  __tsan_mutex_pre_unlock(this, 0);
  __tsan_mutex_post_unlock(this, 0);
  __tsan_mutex_pre_lock(this, 0);
  await(this, condition);
  __tsan_mutex_post_lock(this, 0, 0);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const await = Library<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  if (condition.Eval()) return true;
  __tsan_mutex_pre_unlock(this, 0);
  __tsan_mutex_post_unlock(this, 0);
  __tsan_mutex_pre_lock(this, 0);
  const bool holds = await(this, condition, timeout);
  __tsan_mutex_post_lock(this, 0, 0);
  return holds;
}

void Notification::Notify() {
  static auto* const notify = Library<void(Notification*)>("12Notification6NotifyEv");
  __tsan_release(this);
  notify(this);
}

void Notification::WaitForNotification() const {
  static auto* const wait =
      Library<void(const Notification*)>("12Notification19WaitForNotificationEv", "_ZNK");
  wait(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

ABSL_NAMESPACE_END
}  // namespace absl
