#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::wire {

// Counts the answers that were given and have not been written to their connections yet. A server
// that closed earlier would lose them: a fleet's last answer is that the run is over. Thread-safe.
class Answers {
 public:
  void Given() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++under_way_;
  }
  void Left() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --under_way_;
  }
  // Until all have left, but no longer than this.
  void AwaitAllLeft(Duration patience) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto none = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return under_way_ == 0; };
    mutex_.AwaitWithTimeout(absl::Condition(&none), absl::FromChrono(patience));
  }

 private:
  absl::Mutex mutex_;
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace macaw::wire
