#include "worker/owners_command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/child.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/pause.h"

namespace macaw::worker {
namespace {

// Whether the child ends before the deadline.
bool Ends(const Child& child, TimePoint deadline) {
  while (true) {
    const Duration left = deadline - SteadyClock().Now();
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd fd{child.pidfd(), POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(std::max<int64_t>(0, milliseconds)));
    if (ready > 0) return true;
    if (left <= Duration{}) return false;
  }
}

}  // namespace

std::string AskOwnersCommand(const std::vector<std::string>& command, Duration limit) {
  const TimePoint deadline = SteadyClock().Now() + limit;
  ChildSpec spec{.name = command.front(), .argv = command, .output = STDERR_FILENO};
  spec.argv.front() = FindOnPath(command.front());
  absl::StatusOr<Child> child = Child::Spawn(spec);
  if (!child.ok()) {
    Logger("worker").Warning(absl::StrCat("accept.run_when ", child.status().message()));
    return "accept.run_when could not be run";
  }
  if (!Ends(*child, deadline)) {
    child->Kill();
    (void)child->Reap();
    return absl::StrCat("accept.run_when did not answer within ", ToSeconds(limit), " s");
  }
  const Exit exit = child->Reap();
  if (exit.ok()) return "";
  return absl::StrCat("accept.run_when says no (", exit.Text(), ")");
}

OwnersAnswer::OwnersAnswer(Ask ask, Duration pause)
    : ask_(std::move(ask)),
      pause_(pause),
      thread_([this](const std::stop_token& stop) { Loop(stop); }) {}

std::string OwnersAnswer::Last() const {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&asked_));
  return answer_;
}

void OwnersAnswer::Loop(const std::stop_token& stop) {
  NameThisThread("run-when");
  do {
    std::string answer = ask_();
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
    asked_ = true;
  } while (!PauseUnlessStopped(stop, pause_));
}

}  // namespace macaw::worker
