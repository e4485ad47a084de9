#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace macaw::cli {

struct SweepOptions {
  std::string file;                     // the sweep file
  std::string out;                      // the sweep's folder; "": sweeps/<name of the file>
  std::optional<uint32_t> jobs, cores;  // these three replace what the file says
  std::optional<double> memory;         // gigabytes
  bool retry_failed = false;            // runs that failed are tried again
  bool dry_run = false;                 // print the jobs, and end
  bool quiet = false;
  bool json = false;  // events for programs on standard output, and nothing else
};

// `macaw sweep`: runs every configuration with every seed, side by side, and compares them. The
// same command goes on with a sweep that was interrupted or killed. Returns the program's exit
// code; errors have been printed. With `json` it prints one JSON object a line:
//   {"event": "said", "what", "text"}
//   {"event": "begun", "folder", "runs"}
//   {"event": "run", "name", "state", "rounds", "value", "why", "done", "failed", "runs", "best"}
//   {"event": "message", "text"}
//   {"event": "error", "code", "message", "place", "key", "meant"}
//   {"event": "table", …}      SweepTableJson (table.h), in it
//   {"event": "end", "code", "go_on"}       always the last line; go_on: the folder, or ""
int Sweep(const SweepOptions& options);

// `macaw sweep show`: the table of a sweep that goes on or is over.
struct SweepShowOptions {
  std::string folder;
  std::string metric;  // another one than the sweep's; "": that one
  bool json = false;   // SweepTableJson
};
int ShowSweep(const SweepShowOptions& options);

}  // namespace macaw::cli
