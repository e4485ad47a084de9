#pragma once

#include "absl/status/status.h"

namespace macaw::cli {

// Exit codes of every program here.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage =
    2;  // bad arguments or configuration; of a child also whatever would only come again
constexpr int kExitNoRoom =
    4;  // of a worker: no disk or memory left; pointless until there is some
constexpr int kExitInterrupted = 130;

// Of a command that ended so: what the user wrote is wrong, or the world is.
int ExitCodeOf(const absl::Status& status);

// Prints "macaw: error: …" to standard error unless all went well; the exit code.
int Report(const absl::Status& status);

}  // namespace macaw::cli
