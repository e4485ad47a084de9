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

  // What is under way is not wanted any more: work that takes long ends early, with an error.
  void GiveUp(bool give_up = true) { given_up_.store(give_up, std::memory_order_relaxed); }
  bool given_up() const { return given_up_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> done_ = 0;
  std::atomic<bool> given_up_ = false;
};

}  // namespace macaw
