#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/process/supervisor.h"
#include "core/clock.h"

namespace macaw::cli {

struct RunOptions {
  std::string folder;       // exists
  std::string config_file;  // what the server reads, in the folder
  std::string node_file;    // what the workers read
  int lock = -1;            // descriptor of the folder's lock; the server keeps it, too
  // Called with each finished round: a row of metrics.jsonl.
  std::function<void(const std::string& row)> on_row = [](const std::string&) {};
  // Called with what happens to the processes, such as: a worker was started again.
  std::function<void(const std::string& message)> on_message = [](const std::string&) {};
  bool resume = false;
  bool stateful = false;              // clients keep a state between rounds
  std::vector<uint64_t> state_reset;  // clients whose states are discarded; with `resume`
  std::string replay;                 // a log of rounds whose decisions this run repeats; "": none
  std::vector<uint64_t> without;      // with `replay`: clients that no round trains
  std::vector<uint32_t> evaluate_after;  // rounds whose model is evaluated, too
  bool trace = false;  // workers write what each client's batches were to trace/ in the folder
  int steps = -1;      // the server goes on after each round when told so there; -1: by itself
  std::optional<Duration> limit;  // after so long everything is killed (SupervisorOptions::limit)
  bool quiet = false;             // no progress; messages are shown
  bool silent = false;            // no messages either
};

// Runs one resolved configuration in child processes (macaw-server, macaw-worker: beside this
// program), showing progress on standard error.
absl::StatusOr<SupervisedEnd> RunInChildren(const Config& config, const RunOptions& options);

}  // namespace macaw::cli
