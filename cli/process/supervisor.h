#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/process/exit.h"
#include "core/child.h"
#include "core/clock.h"

namespace macaw::cli {

// Another service that the run needs and that manages its own process (a private Redis).
struct Service {
  std::function<int()> fd;               // a descriptor: readable when there is something to do
  std::function<absl::Status()> attend;  // does this work; an error says why the run cannot go on
  std::function<Child*()> process;       // null while there is no process; may be unset
};

struct ServerStart {
  int ready_fd = -1, report_fd = -1;
  bool again = false;   // the previous server crashed, and this one continues its run
  std::string address;  // where the previous one listened and the workers look; "": nowhere
};

struct SupervisorOptions {
  // The server writes one line with its address to `ready_fd` when it listens, and each finished
  // row of metrics.jsonl as one line to `report_fd`. It exits with kExitInterrupted when SIGINT
  // ended the run early.
  std::function<ChildSpec(const ServerStart& start)> server;
  // Whether a server that was killed by a signal is restarted while its workers live on.
  bool restart_server = false;
  std::function<ChildSpec(uint32_t index, const std::string& address)> worker;
  uint32_t workers = 1;
  std::vector<Service> services;
  // How long to wait for a child that is stopped (SIGSTOP), with a message to the user. After that
  // a worker is killed and restarted; for the server or a service, the run ends.
  Duration patience = std::chrono::seconds(60);
  // How long rows are collected before `on_row` gets them. A run may finish a thousand rounds a
  // second; waking this process for each of them would take time from the cores.
  Duration report_pause = std::chrono::milliseconds(10);
  // After so long everything is killed, whatever has been finished (kOutOfTime). Unset: never.
  std::optional<Duration> limit;
  // Gets each row. Returns whether the run made progress: false when a restarted server repeats a
  // row.
  std::function<bool(const std::string& row)> on_row;
  std::function<void(const std::string& message)> say;  // prints one line for the user
};

// How the children of a run ended.
enum class SupervisedEnd : uint8_t {
  kFinished,
  kInterrupted,  // the server has dropped the open round and kept the rest
  kKilled,       // a second Ctrl-C: everything was killed at once
  kOutOfTime,    // everything was killed when `limit` was over
};

// Runs one server and its workers until the server ends. A worker that dies is restarted
// (restart_policy.h). A worker that got no answer (kExitUnanswered) is restarted once; if that
// happens again before the next finished round, the run ends. If the server dies, the run ends,
// unless a signal killed the server and `restart_server` is set: then it is restarted by the same
// policy while the workers live on. SIGINT, SIGTERM or SIGHUP asks the server to stop; a second one
// kills everything. If the server has been asked to stop because of an error, the first one only
// tells the error, which is returned also after the second. No child outlives this call or this
// process, whatever happens. Errors name the child, how it ended and its last error line.
// kFailedPrecondition (of the server) and kInvalidArgument (of a worker) are errors that a restart
// would only repeat. Call on the main thread, before any other thread exists (signals are blocked
// during the call).
absl::StatusOr<SupervisedEnd> Supervise(const SupervisorOptions& options);

}  // namespace macaw::cli
