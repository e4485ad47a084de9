#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/process/child.h"
#include "cli/process/exit.h"
#include "core/clock.h"

namespace macaw::cli {

// Something else that a run cannot do without and that looks after itself (a private Redis).
struct Service {
  std::function<int()> fd;               // a descriptor: readable when there is something to do
  std::function<absl::Status()> attend;  // does it; an error says why the run cannot go on
  std::function<Child*()> process;       // null while there is none; may be left out
};

struct ServerStart {
  int ready_fd = -1, report_fd = -1;
  bool again = false;   // the one before it has crashed: this one goes on where it was
  std::string address;  // where that one listened, and where the workers look for it; "": nowhere
};

struct SupervisorOptions {
  // The server writes one line with its address to `ready_fd` when it listens, and each finished
  // row of metrics.jsonl as one line to `report_fd`. It exits with kExitInterrupted when SIGINT
  // ended the run early.
  std::function<ChildSpec(const ServerStart& start)> server;
  // A server that was killed by a signal is started again, under its workers.
  bool restart_server = false;
  std::function<ChildSpec(uint32_t index, const std::string& address)> worker;
  uint32_t workers = 1;
  std::vector<Service> services;
  // A child that is stopped (SIGSTOP) is waited for this long, with a word to people. Then a worker
  // is killed and started again; for the server or a service, the run ends.
  Duration patience = std::chrono::seconds(60);
  // Whether the run has moved on: not where a server that was started again repeats a row.
  std::function<bool(const std::string& row)> on_row;
  std::function<void(const std::string& message)> say;  // one line for people
};

// How the children of a run ended.
enum class SupervisedEnd : uint8_t {
  kFinished,
  kInterrupted,  // the server has dropped the open round and kept the rest
  kKilled,       // a second Ctrl-C: nothing was asked
};

// Runs one server and its workers until the server ends. A worker that dies is started again
// (restart_policy.h); one that was not answered (kExitUnanswered) once more, and the second time
// without a round in between the run ends. The server's death ends everything, unless it was killed
// by a signal and `restart_server` is set: then it is started again by the same policy, while the
// workers live on. SIGINT, SIGTERM or SIGHUP asks the server to stop, a second one kills. Whatever
// happens, no child outlives the call, nor this process. Errors name the child, how it ended and
// its last error line; kFailedPrecondition (of the server) and kInvalidArgument (of a worker) are
// those that would only come again. Call on the main thread, before any other thread exists
// (signals are blocked meanwhile).
absl::StatusOr<SupervisedEnd> Supervise(const SupervisorOptions& options);

}  // namespace macaw::cli
