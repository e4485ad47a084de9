#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "core/ids.h"

namespace macaw::wire {

// Limits the requests that have arrived and are not yet judged: to one per session, and to a number
// of bytes in total. A request that finds no place is told to come again. No session can keep
// others waiting: it has at most one request here, which leaves as soon as the server is done with
// it. Thread-safe. Places may outlive the Intake.
class Intake {
  struct State {
    explicit State(uint64_t most_bytes) : most(most_bytes) {}
    const uint64_t most;
    absl::Mutex mutex;
    uint64_t used ABSL_GUARDED_BY(mutex) = 0;
    absl::flat_hash_set<SessionId> sessions ABSL_GUARDED_BY(mutex);
  };

 public:
  // One request's place, until it leaves.
  class Place {
   public:
    Place(std::shared_ptr<State> state, SessionId session, uint64_t bytes)
        : state_(std::move(state)), session_(session), bytes_(bytes) {}
    ~Place() { Leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void Leave() {
      absl::MutexLock lock(&state_->mutex);
      if (std::exchange(left_, true)) return;
      state_->used -= bytes_;
      state_->sessions.erase(session_);
    }

   private:
    const std::shared_ptr<State> state_;
    const SessionId session_;
    const uint64_t bytes_;
    bool left_ = false;  // under the state's mutex
  };

  explicit Intake(uint64_t most_bytes) : state_(std::make_shared<State>(most_bytes)) {}

  // Null when there is no place now. A request larger than the total gets a place when it is alone.
  // Requests outside of sessions (0) are limited by bytes only.
  std::shared_ptr<Place> Enter(SessionId session, uint64_t bytes) {
    absl::MutexLock lock(&state_->mutex);
    const bool fits =
        state_->used == 0 || (state_->used <= state_->most && bytes <= state_->most - state_->used);
    if (!fits || (session.value != 0 && !state_->sessions.insert(session).second)) return nullptr;
    state_->used += bytes;
    return std::make_shared<Place>(state_, session, bytes);
  }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace macaw::wire
