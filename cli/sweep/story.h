#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/results/table.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/prepare.h"
#include "cli/sweep/sweep_file.h"
#include "core/fd.h"

namespace macaw::cli {

// A sweep's folder, which no other process uses meanwhile.
struct HeldSweep {
  SweepFolder folder;
  Fd lock;
};

// What a sweep is made of, where it goes, and what is particular to who began it.
struct SweepSource {
  std::function<absl::StatusOr<SweepFile>()> read;
  std::function<bool(const Job&)> is_known;  // an earlier command has checked this job
  // Chooses, makes and locks the folder. May set the plan's `runs` and add seeds of runs that are
  // over.
  std::function<absl::StatusOr<HeldSweep>(PreparedSweep&)> open;
  // Called before the first run, and with what a run has changed.
  std::function<absl::Status(const PreparedSweep&, const ResultTable&)> on_change =
      [](const auto&, const auto&) { return absl::OkStatus(); };
  std::string again;                   // the command that goes on
  std::string retry;                   // "… tries them again": the runs that failed
  std::vector<std::string> arguments;  // of each `macaw simulate`
  bool every_run_counts = false;       // a run that fails is a failure of the whole
  bool retry_failed = false;           // runs that failed are tried again
  bool dry_run = false;                // print the jobs, and end
  bool quiet = false;
  bool json = false;  // events for programs on standard output (sweep.h), and nothing else
};

// The story of a sweep, and of a repeat: reads and checks everything, runs the jobs, and prints the
// table. Returns the program's exit code; errors have been printed. Call on the main thread.
int RunSweep(SweepSource source);

}  // namespace macaw::cli
