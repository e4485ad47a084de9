#include "cli/process/clock_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/process/exit.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/pause.h"

namespace macaw::cli {
namespace {

constexpr Duration kEvery = std::chrono::seconds(1);
constexpr Duration kMost = std::chrono::minutes(1);

}  // namespace

Duration SetBack::Look(TimePoint steady, absl::Time wall) {
  const absl::Duration ahead =
      (wall - absl::UnixEpoch()) - absl::FromChrono(steady.time_since_epoch());
  const absl::Duration before = ahead_.value_or(ahead);
  ahead_ = ahead;
  return absl::ToChronoNanoseconds(std::max(before - ahead, absl::ZeroDuration()));
}

ClockWatch::ClockWatch(std::function<void(Duration back)> restart)
    : thread_([restart = std::move(restart)](const std::stop_token& stop) {
        NameThisThread("clock");
        SetBack set_back;
        do {
          const Duration back = set_back.Look(SteadyClock().Now(), absl::Now());
          if (back > kMost) return restart(back);
        } while (!PauseUnlessStopped(stop, kEvery));
      }) {}

void StartAgain(char* const* arguments) {
  ::execv("/proc/self/exe", arguments);
  Logger("process").Error(absl::StrCat("not_started_again why=", std::strerror(errno)));
  std::_Exit(kExitFailed);
}

}  // namespace macaw::cli
