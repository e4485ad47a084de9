#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/config/reader.h"
#include "cli/simulate/output.h"
#include "cli/simulate/selection.h"
#include "sdk/catalogue.h"
#include "server/metrics.h"

namespace macaw::cli {

struct SimulateOptions {
  std::string config;            // a TOML file; "" with `resume`
  std::vector<std::string> set;  // --set section.key=value
  std::string out;               // the run's folder; "": as configured
  std::string resume;            // folder of a run to go on with
  std::optional<std::string> clients, rounds, seed, processes, slots,
      owners;                         // as the user wrote them; checked like their keys
  std::optional<uint32_t> repeat;     // runs with seeds seed, seed+1, … (cli/sweep/repeat.h)
  std::optional<uint32_t> jobs;       // of these at a time
  std::vector<uint64_t> state_reset;  // clients whose states are discarded; with `resume`
  std::string replay;  // a log of rounds whose decisions the run repeats (`macaw replay`)
  std::vector<uint64_t> without;         // with `replay`: clients that no round trains
  std::vector<uint32_t> evaluate_after;  // rounds whose model is evaluated, too
  bool force = false;
  bool tcp = false;        // TCP loopback instead of a Unix socket
  bool trace = false;      // the workers write down every batch (trace/ in the run's folder)
  bool check = false;      // find every error that can be found before a run, and end
  bool estimate = false;   // say what the run will cost (estimate.h), and end
  std::string model_step;  // a file for what the first model does with two batches (model_step.h)
  bool quiet = false;
  // After each round, wait for a line on standard input: "go ROUND", up to which round to go on, or
  // "stop WHY".
  bool step = false;
  bool result = true;  // print the result; false: the caller tells of it
  bool json = false;   // events for programs on standard output (output.h), and nothing else
};

// `macaw simulate` without --repeat: composes the configuration, starts server and workers, shows
// the progress, prints the result. Returns the program's exit code; errors have been printed.
int Simulate(const SimulateOptions& options);

// What is known of a run before it begins: its configuration, completed from the data, and the
// columns of its metrics.jsonl.
struct CheckedRun {
  Config config;
  std::vector<server::MetricColumn> columns;
  EvaluableRows rows;
};
// Finds every error that can be found before a run, as `macaw simulate --check` does. Opens the
// data. `output` gets the opening lines.
absl::StatusOr<CheckedRun> CheckBeforeRun(const Document& document, const sdk::Catalogue& catalogue,
                                          const std::vector<Override>& overrides, Idle idle,
                                          Output& output);

}  // namespace macaw::cli
