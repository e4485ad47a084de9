#pragma once

#include <atomic>
#include <cstdint>

namespace macaw {

// Counts pieces of work of any kind, so that another thread can see whether this one gets on.
// Thread-safe. On a cache line of its own: counting is one addition that waits for nobody.
class alignas(64) WorkCounter {
 public:
  void Count() { done_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> done_ = 0;
};

}  // namespace macaw
