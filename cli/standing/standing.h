#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/process/signals.h"
#include "cli/standing/start_policy.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

struct StandingOptions {
  std::string folder;      // of the queue and its runs
  std::string listen;      // where workers reach each run; port 0: a free one, the same for all
  std::string authority;   // of the fleet; "": none
  std::string admin;       // where runs are submitted, besides the socket queue.sock in the folder
  std::string run_admin;   // server.admin of each run; "": the socket in the run's folder
  std::string http;        // of the page of all runs (queue_page.h); "": none
  std::string run_http;    // server.http of each run; "": none
  std::string http_token;  // a file with the token of both; "": none
  uint32_t run_starts = StartPolicy::kStarts;
};

// `macaw-server --standing`: does the runs that operators submit, one after the other, each in a
// server process of its own. A run whose process is killed goes on in a new one, five times in ten
// minutes at most; then it has failed and the next one begins. One whose process ends with
// kExitFailed is started again, too (start_policy.h). Between runs, nodes enrol and renew
// their certificates, and those that look for a run are told to come again. Returns the exit code
// after a signal. A run that is open then goes on when the standing server is started again. Call
// on the main thread, before any other thread exists.
absl::StatusOr<int> Stand(const StandingOptions& options, SignalFd& signals);

// Whether a plan that is submitted may run here: it parses, is complete without data, and names
// nothing of this machine (no path, no plug-in, no address).
absl::Status CheckSubmittedPlan(const std::string& name, const std::string& plan);

}  // namespace macaw::cli
