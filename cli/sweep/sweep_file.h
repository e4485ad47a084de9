#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/reader.h"
#include "cli/sweep/space.h"

namespace macaw::cli {

// What a sweep file says besides its base and its keys.
struct SweepSettings {
  std::string metric;               // decides which configuration is best; "": the run's usual one
  std::string mode;                 // "max", "min"; "": as the metric's name says
  std::vector<std::string> report;  // columns shown beside the metric; empty: the usual ones
  std::vector<std::string> baselines;  // algorithms to compare every configuration with
  std::vector<uint64_t> seeds;         // run.seed of each configuration's runs; empty: the base's
  uint32_t samples = 0;                // draws of the keys with ranges
  uint64_t sample_seed = 0;            // of these draws
  // Successive halving: every configuration trains for the first of these numbers of rounds, the
  // best of them go on to the next, and so on. Growing; empty: every configuration runs to its end.
  std::vector<uint32_t> rungs;
  uint32_t factor = 3;  // one in so many configurations goes on to the next rung
  uint32_t jobs = 0;    // at a time; 0: as many as cores and memory allow
  uint32_t cores = 0;   // 0: those of this machine
  double memory = 0;    // gigabytes for all jobs together; 0: what is free at first
};

struct SweepFile {
  std::string path;
  SweepSettings settings;
  Document base;
  std::vector<Axis> axes;
  std::vector<Override> set;  // of the command line, for all configurations
  bool is_repeat = false;     // made of `macaw simulate --repeat` (repeat.h)
};

// Reads and checks a sweep file, but for what only a configuration's reader can check: that its
// keys exist and take these values. Errors name line and key, and the nearest right one. Relative
// paths start at the file.
absl::StatusOr<SweepFile> ReadSweepFile(const std::string& path);

// Every key of a sweep file with its default and meaning: `macaw sweep --help-file`.
std::string SweepFileHelp();

}  // namespace macaw::cli
