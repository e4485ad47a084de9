#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/simulate/output.h"
#include "cli/sweep/plan.h"
#include "cli/sweep/sweep_file.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// One run of a sweep.
struct Job {
  std::string name;
  size_t configuration = 0;  // in SweepPlan::configurations
  uint64_t seed = 0;
  std::string config;  // a whole configuration (TOML)
};

struct PreparedSweep {
  SweepPlan plan;
  std::vector<Job> jobs;              // by configuration, then by seed
  std::vector<std::string> notes;     // for people; whole sentences
  std::vector<std::string> warnings;  // likewise: what makes the result less than it looks
  // The job that takes most cores has this many processes (owners among them), with this many slots
  // each. 0 slots: the sweep chooses.
  uint32_t processes = 1, slots = 0;
  bool gpu = false;  // jobs train on GPUs
};

// Reads the configuration of every job, and checks each of them as `macaw simulate --check` does,
// with its first seed, and the file of first weights of each seed, but for those that `is_known`
// (an earlier command has checked them).
// Combinations that are the same experiment run once. Errors are those of the configuration, with
// the line of the sweep file. Without keys that vary it tells `output` the run's opening lines.
absl::StatusOr<PreparedSweep> Prepare(const SweepFile& file, const sdk::Catalogue& catalogue,
                                      const std::function<bool(const Job&)>& is_known,
                                      Output& output);

}  // namespace macaw::cli
