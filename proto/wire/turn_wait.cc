#include "proto/wire/turn_wait.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace macaw::wire {

// What follows the wait. Who takes it ends the wait; the others find nothing.
class TurnWait::Pending {
 public:
  explicit Pending(Then then) : then_(std::move(then)) {}
  Then Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(then_, nullptr);
  }

 private:
  absl::Mutex mutex_;
  Then then_ ABSL_GUARDED_BY(mutex_);
};

// Neither callback knows this object: it may be gone when they run.
TurnWait::TurnWait(DownloadTurns& turns, const std::string& node, const Digest& blob, Then then)
    : turns_(turns),
      pending_(std::make_shared<Pending>(std::move(then))),
      number_(turns.Enter(node, blob, [pending = pending_] {
        if (const Then mine = pending->Take()) mine(Over::kTurn, Duration{});
      })) {
  const absl::Time pulse = absl::Now() + absl::FromChrono(turns.limits().pulse);
  pulse_.Set(absl::ToChronoTime(pulse), [&turns, number = number_, pending = pending_](bool due) {
    if (!due) return;
    if (const Then mine = pending->Take()) {
      turns.Look();
      mine(Over::kPulse, turns.TakeWaited(number));
    }
  });
}

bool TurnWait::Stop() { return pending_->Take() != nullptr; }

}  // namespace macaw::wire
