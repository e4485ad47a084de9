#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

// Exit codes of every program here.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;  // bad arguments or configuration; of a child also any error that a
                               // restart would repeat
constexpr int kExitUnanswered = 3;  // of a worker: the server, or the Redis with its clients'
                                    // states, has not answered for as long as it waits
constexpr int kExitNoRoom = 4;      // of a worker: no disk space or memory left; a restart does not
                                    // help until there is some
constexpr int kExitMissingBackend = 5;  // the run needs a back end that is not installed here
constexpr int kExitInterrupted = 130;

// A command that compares, as diff(1) does: kExitOk the same, kExitDiffers they differ, and
// kExitUsage it cannot say. Where the process itself ends such a command, because its output cannot
// be written or memory has run out, the code is kExitUsage after this call, and else kExitFailed.
constexpr int kExitDiffers = 1;
void LeaveOneForADifference();

// The exit code of a command that ended with this status: kExitUsage if the user's input is wrong
// (a bad argument, a missing or already existing file), kExitFailed for any other error.
int ExitCodeOf(const absl::Status& status);

// Whether another start of this program would end with the same error. Nobody tries it then.
enum class Starts : uint8_t { kServer, kWorker };
bool WouldEndTheSame(const absl::Status& status, Starts program);

// Prints "PROGRAM: error: MESSAGE" to standard error, in one write: log lines of other threads stay
// whole lines before or after it. After ExplainEndings(..., Endings::kLogLine) it has the form of
// the log's lines.
void PrintError(absl::string_view program, absl::string_view message);

// Prints "macaw: error: …" to standard error unless the status is OK. Returns the exit code.
int Report(const absl::Status& status);

// The last step of a program whose standard output is its answer: flushes it. Returns `code`; or
// kExitFailed (LeaveOneForADifference: kExitUsage) instead of kExitOk, with an error, if not all of
// it could be written. That the reader of a pipe has gone (`| head`) is no error. A server does
// without: its answer is the run's folder.
int CloseOutput(const char* program, int code);

// The form of the line that says why a program ends. kText: "PROGRAM: error: …", as people want it
// of a command. kLogLine: the same with its priority under journald (JOURNAL_STREAM), and an object
// with MACAW_LOG_FORMAT=json, as the lines of the log (core/logging.h).
enum class Endings : uint8_t { kText, kLogLine };

// After this call, an exception that nobody catches, on any thread, ends the process with one line
// "PROGRAM: error: …". The exit code is kExitFailed (LeaveOneForADifference: kExitUsage) if memory
// or threads have run out. Any library may meet these limits, so there is no other place to catch
// them. `program` must live until the process ends. A write beyond the limit of a file's size
// (ulimit -f) fails as one on a full disk does, and no signal ends the process.
void ExplainEndings(const char* program, Endings form = Endings::kText);

// The first step of a program: opens /dev/null for each of standard input, output and error that is
// closed. A file of the run would get its number otherwise, and what is printed with it. Standard
// output is opened for reading alone, so that writing to it fails as before (CloseOutput).
void HoldStandardStreams();

}  // namespace macaw::cli
