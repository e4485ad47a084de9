#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace macaw::admin {

// The newest lines of events.jsonl, for those who follow a run. A line's number is its place in the
// file, from 1. Earlier lines are in the file. Thread-safe.
class EventFeed {
 public:
  explicit EventFeed(size_t most = 10'000) : most_(most) {}

  // The file has so many lines already. Call it before the first Append.
  void StartAfter(uint64_t lines) ABSL_LOCKS_EXCLUDED(mutex_);
  void Append(std::string line) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);  // nothing comes after this

  struct Batch {
    uint64_t first = 0;  // number of the first line: `from`, or the oldest one that is kept
    std::vector<std::string> lines;
    bool closed = false;  // there is nothing behind these lines, and there never will be
  };
  // Up to `most` lines from this number on. 0: from the next line that is written.
  Batch Read(uint64_t from, size_t most) const ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t next() const ABSL_LOCKS_EXCLUDED(mutex_);  // the number of the next line

  // Calls `news` once, as soon as there is a line `from` or the feed is closed: at once, or on the
  // thread that appends or closes. Returns a number for Forget.
  uint64_t WhenThereIs(uint64_t from, std::function<void()> news) ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(uint64_t waiter) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t Next() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return first_ + lines_.size(); }

  struct Waiter {
    uint64_t from = 0;
    std::function<void()> news;
  };
  const size_t most_;
  mutable absl::Mutex mutex_;
  uint64_t first_ ABSL_GUARDED_BY(mutex_) = 1;  // number of the oldest line
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

// The newest row of metrics.jsonl. Thread-safe.
class LatestRow {
 public:
  void Set(const std::string& row) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    row_ = row;
  }
  std::string Get() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return row_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string row_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::admin
