#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::wire {

struct DownloadLimits {
  // Of one name at once; a further one ends the oldest. A node fetches one blob after the other.
  size_t of_name = 8;
  // One of which nothing could be sent for so long is ended. The largest chunk takes two minutes at
  // 8 kB a second.
  Duration stall = std::chrono::minutes(10);
};

// The downloads that are under way. Each holds its blob, which may be a whole model, until it ends:
// a node that begins one in each round, and reads none, would keep the models of all rounds in the
// server's memory. What is stalled is looked for when a download begins, since only then more is
// held. Thread-safe.
class OpenDownloads {
 public:
  OpenDownloads(const DownloadLimits& limits, const Clock& clock)
      : limits_(limits), clock_(clock) {}

  // A download of `name`; "": of a caller without one, who may have any number. `end` ends its
  // call; it is called until Leave, under a lock, and must not call back. Returns its number.
  uint64_t Enter(const std::string& name, std::function<void()> end) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const TimePoint now = clock_.Now();
    size_t of_name = 0;
    Open* oldest = nullptr;
    for (auto& [number, open] : open_) {  // in the order in which they began
      if (!open.ended && now - open.moved > limits_.stall) End(open);
      if (name.empty() || open.ended || open.name != name) continue;
      ++of_name;
      if (oldest == nullptr) oldest = &open;
    }
    if (oldest != nullptr && of_name >= limits_.of_name) End(*oldest);
    open_.emplace(++newest_, Open{.name = name, .end = std::move(end), .moved = now});
    return newest_;
  }
  // A chunk was sent.
  void Moved(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (const auto found = open_.find(number); found != open_.end())
      found->second.moved = clock_.Now();
  }
  void Leave(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    open_.erase(number);
  }

 private:
  struct Open {
    std::string name;
    std::function<void()> end;
    TimePoint moved;  // when it began, or when the newest chunk was sent
    bool ended = false;
  };
  static void End(Open& open) {
    open.ended = true;
    open.end();
  }

  const DownloadLimits limits_;
  const Clock& clock_;
  absl::Mutex mutex_;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Open> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
