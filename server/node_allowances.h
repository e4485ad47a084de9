#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/token_bucket.h"

namespace macaw::server {

// How often one node may do what leaves a record in the run's files. A node that keeps to the
// protocol stays far below; one that does not fills some megabytes a day instead of the disk.
// Thread-safe.
class NodeAllowances {
 public:
  enum class What : uint8_t {
    kRegister,    // a node that is lost and one that joins
    kRelease,     // clients that are queued again
    kTurnedDown,  // a commit of which nothing counts
    kDeclined,    // another reason for which it does not work now
  };

  // Counts one. False: the node has done this too often.
  bool Take(const std::string& node, What what, TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (nodes_.size() >= kMostNodes && !nodes_.contains(node)) ForgetFull(now);
    return nodes_[node].buckets[Place(what)].Take(kAllowances[Place(what)], now);
  }
  // The reason that a node gives now for not working ("": it works), or its last one, if it has
  // given other ones too often.
  std::string Declined(const std::string& node, const std::string& why, TimePoint now)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      const auto it = nodes_.find(node);
      if (why == (it == nodes_.end() ? "" : it->second.declined)) return why;
    }
    const bool allowed = Take(node, What::kDeclined, now);
    absl::MutexLock lock(&mutex_);
    std::string& declined = nodes_[node].declined;
    if (allowed) declined = why;
    return declined;
  }
  // Whether one more would be allowed.
  bool Has(const std::string& node, What what, TimePoint now) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto it = nodes_.find(node);
    if (it == nodes_.end()) return true;
    TokenBucket copy = it->second.buckets[Place(what)];
    return copy.Take(kAllowances[Place(what)], now);
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return nodes_.size();
  }

 private:
  struct Node {
    std::array<TokenBucket, 4> buckets;
    std::string declined;
  };
  static constexpr std::array<Allowance, 4> kAllowances = {{
      {.every = std::chrono::seconds(10), .burst = 20},
      {.every = std::chrono::seconds(1), .burst = 100},
      {.every = std::chrono::seconds(1), .burst = 100},
      {.every = std::chrono::seconds(10), .burst = 20},
  }};
  static constexpr size_t kMostNodes = 1 << 14;

  static size_t Place(What what) { return static_cast<size_t>(what); }
  void ForgetFull(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::erase_if(nodes_, [now](const auto& node) {
      return node.second.declined.empty() &&
             std::ranges::all_of(node.second.buckets,
                                 [now](const TokenBucket& bucket) { return bucket.IsFull(now); });
    });
  }

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Node> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::server
