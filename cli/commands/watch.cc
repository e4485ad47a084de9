#include "cli/watch/watch.h"

#include <poll.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/signals.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

absl::Status Serve(const WatchCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const SignalFd signals, SignalFd::Open());
  MACAW_ASSIGN_OR_RETURN(const auto page, LivePage::Start(command.runs, command.port));
  std::cout << absl::StrCat("http://localhost:", page->port(),
                            "/ shows the runs while they go on; Ctrl-C ends it\n")
            << std::flush;
  pollfd ends{.fd = signals.fd(), .events = POLLIN, .revents = 0};
  while (::poll(&ends, 1, /*timeout=*/-1) < 1) {
  }
  return absl::OkStatus();
}

}  // namespace

int WatchRuns(const WatchCommand& command) { return Report(Serve(command)); }

}  // namespace macaw::cli
