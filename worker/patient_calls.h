#pragma once

#include <atomic>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "worker/retry_pace.h"

namespace macaw::worker {

struct Patience {
  Duration reconnect_for{};    // how long nobody may answer
  Duration reconnect_every{};  // as the server asks (RegisterReply); 0: it has not
  uint64_t seed = 0;           // of the pauses: another in each process
};

// Repeats calls while nobody answers: a server may be starting, restarting or busy. Thread-safe.
class PatientCalls {
 public:
  PatientCalls(const Patience& patience, std::stop_token stop)
      : patience_(patience), stop_(std::move(stop)) {}

  // `call` returns a StatusOr. Its last result; UNAVAILABLE when the patience has run out.
  template <typename Call>
  auto Repeat(const Call& call) const -> decltype(call()) {
    const TimePoint give_up = SteadyClock().Now() + patience_.reconnect_for;
    RetryPace pace = NewPace();
    while (true) {
      auto result = call();
      const bool unanswered =
          absl::IsUnavailable(result.status()) || absl::IsDeadlineExceeded(result.status());
      if (result.ok() || !unanswered || stop_.stop_requested()) return result;
      const Duration pause = pace.Next();
      if (SteadyClock().Now() + pause >= give_up) {
        return absl::UnavailableError(absl::StrCat("the server has not answered for ",
                                                   ToSeconds(patience_.reconnect_for),
                                                   " s: ", result.status().message()));
      }
      WaitFor(pause);
    }
  }

  // The pauses of one more call.
  RetryPace NewPace() const { return {patience_.reconnect_every, patience_.seed, ++calls_}; }

 private:
  // Returns early when a stop is requested.
  void WaitFor(Duration pause) const {
    absl::Mutex mutex;
    bool woken = false;
    const std::stop_callback wake(stop_, [&] {
      absl::MutexLock lock(&mutex);
      woken = true;
    });
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(absl::Condition(&woken), absl::FromChrono(pause));
  }

  const Patience patience_;
  const std::stop_token stop_;
  mutable std::atomic<uint64_t> calls_ = 0;
};

}  // namespace macaw::worker
