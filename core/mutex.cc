#include "core/mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace macaw {
namespace {

// Sleeps while the word is 0, at most until `end` on the steady clock (null: no limit). May return
// early.
void Sleep(std::atomic<uint32_t>& word, const timespec* end) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE, 0, end, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

void WakeUp::Send() {
  auto* const word = reinterpret_cast<uint32_t*>(&sent_);
  sent_.store(1, std::memory_order_release);
  // The object may be destroyed by now, so only its address is used. If another object is at that
  // address and a thread sleeps on it, that thread wakes, checks its word and sleeps again.
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
}

void WakeUp::Wait() {
  while (sent_.load(std::memory_order_acquire) == 0) Sleep(sent_, nullptr);
}

bool WakeUp::WaitUntil(TimePoint end) {
  const auto since = end.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const timespec at = {.tv_sec = seconds.count(), .tv_nsec = (since - seconds).count()};
  while (sent_.load(std::memory_order_acquire) == 0) {
    if (SteadyClock().Now() >= end) return false;
    Sleep(sent_, &at);
  }
  return true;
}

}  // namespace macaw
