#pragma once

#include "absl/status/status.h"

namespace macaw::cli {

// Exit codes of every program here.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;  // bad arguments or configuration; of a child also whatever would
                               // only come again
constexpr int kExitUnanswered = 3;  // of a worker: the server, or the Redis with its clients'
                                    // states, has not answered for as long as it waits
constexpr int kExitNoRoom = 4;      // of a worker: no disk or memory left; pointless until there is
                                    // some
constexpr int kExitInterrupted = 130;

// Of a command that ended so: what the user wrote is wrong, or the world is.
int ExitCodeOf(const absl::Status& status);

// Prints "macaw: error: …" to standard error unless all went well; the exit code.
int Report(const absl::Status& status);

// From here on an exception that nobody catches, on any thread, ends the process with one line
// "PROGRAM: error: …" and, where memory or threads have run out, kExitFailed. Such limits are met
// in the middle of any library, so there is no other place to catch them. `program` must live for
// ever.
void ExplainUncaught(const char* program);

}  // namespace macaw::cli
