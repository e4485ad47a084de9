#pragma once

#include <algorithm>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/mutex.h"

namespace macaw::worker {

// Repeats calls while nobody answers: a server may be starting, restarting or busy. Thread-safe.
class PatientCalls {
 public:
  PatientCalls(Duration patience, std::stop_token stop)
      : patience_(patience), stop_(std::move(stop)) {}

  // `call` returns a StatusOr. Its last result; UNAVAILABLE when the patience has run out.
  template <typename Call>
  auto Repeat(const Call& call) const -> decltype(call()) {
    const TimePoint give_up = SteadyClock().Now() + patience_;
    Duration pause = std::chrono::milliseconds(50);
    while (true) {
      auto result = call();
      const bool unanswered =
          absl::IsUnavailable(result.status()) || absl::IsDeadlineExceeded(result.status());
      if (result.ok() || !unanswered || stop_.stop_requested()) return result;
      if (SteadyClock().Now() + pause >= give_up) {
        return absl::UnavailableError(absl::StrCat("the server has not answered for ",
                                                   ToSeconds(patience_),
                                                   " s: ", result.status().message()));
      }
      WaitFor(pause);
      pause = std::min<Duration>(pause * 2, std::chrono::seconds(2));
    }
  }

 private:
  // Returns early when a stop is requested.
  void WaitFor(Duration pause) const {
    Mutex mutex;
    bool woken = false;
    const std::stop_callback wake(stop_, [&] {
      MutexLock lock(&mutex);
      woken = true;
    });
    MutexLock lock(&mutex);
    mutex.AwaitFor(pause, [&] { return woken; });
  }

  const Duration patience_;
  const std::stop_token stop_;
};

}  // namespace macaw::worker
