#pragma once

#include <algorithm>
#include <atomic>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/logging.h"
#include "core/pause.h"
#include "worker/outage.h"
#include "worker/retry_pace.h"

namespace macaw::worker {

struct Patience {
  Duration reconnect_for{};    // how long to try without an answer
  Duration longest_pause{};    // how far the mean pause grows
  Duration reconnect_every{};  // first mean pause, as the server asks for (RegisterReply); 0: none
  uint64_t seed = 0;           // seed of the random pauses, different in each process
};

// Repeats calls that get no answer, since a server may be starting, restarting or busy.
// Thread-safe.
class PatientCalls {
 public:
  PatientCalls(const Patience& patience, std::stop_token stop)
      : patience_(patience), stop_(std::move(stop)) {}

  // `call` returns a StatusOr. Returns its last result, or UNAVAILABLE after `reconnect_for`. Says
  // in the log why it waits.
  template <typename Call>
  auto Repeat(const Call& call) const -> decltype(call()) {
    const TimePoint give_up = SteadyClock().Now() + patience_.reconnect_for;
    RetryPace pace = NewPace();
    Outage outage(SteadyClock(), [this](const std::string& line) { log_.Warning(line); });
    while (true) {
      auto result = call();
      const bool unanswered =
          absl::IsUnavailable(result.status()) || absl::IsDeadlineExceeded(result.status());
      if (!unanswered) outage.Answered();
      if (!unanswered || stop_.stop_requested()) return result;
      outage.NoAnswer(result.status());
      const Duration left = give_up - SteadyClock().Now();
      if (left <= Duration{}) {
        return absl::UnavailableError(absl::StrCat("the server has not answered for ",
                                                   ToSeconds(patience_.reconnect_for),
                                                   " s: ", result.status().message()));
      }
      WaitFor(std::min(pace.Next(), left));  // there is a last try at the end
    }
  }

  // The random pauses for one more call.
  RetryPace NewPace() const {
    return {patience_.reconnect_every, patience_.longest_pause, patience_.seed, ++calls_};
  }

  // Returns early when a stop is requested.
  void WaitFor(Duration pause) const { PauseUnlessStopped(stop_, pause); }

 private:
  const Patience patience_;
  const std::stop_token stop_;
  const Logger log_{"worker"};
  mutable std::atomic<uint64_t> calls_ = 0;
};

}  // namespace macaw::worker
