#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/simulate/result.h"

namespace macaw::cli {

// What makes two commands the same experiment: everything but the seed that decides a result.
struct ExperimentKey {
  std::string name, algorithm;
  std::string settings;  // a JSON object (SettingsJson), without the seed
};

// One configuration and all its seeds, as the file BASE-repeat.json keeps them; the runs are in
// BASE-seedS. The file is written before a run begins and after it ends, so that the same command
// goes on after a crash. One thread.
class Repeat {
 public:
  // Finds the experiment's file, or a place for it. `wanted` is the BASE; where other files or runs
  // have it, BASE-2, -3, … is taken, but with `fixed` (the user named it) it is an error that says
  // what differs. With `force` the experiment begins anew in `wanted`, whatever is there.
  static absl::StatusOr<Repeat> Open(const std::string& wanted, bool fixed, bool force,
                                     ExperimentKey key, const std::vector<uint64_t>& seeds);

  std::string file() const { return base_ + "-repeat.json"; }
  std::string FolderOf(uint64_t seed) const;
  bool Begun(uint64_t seed) const { return runs_.contains(seed); }
  bool Done(uint64_t seed) const;

  absl::Status Begin(uint64_t seed);  // on disk before the run's folder is
  absl::Status Finish(RunResult result);

  // Of all runs that are done, by seed: also those that another command made.
  std::vector<RunResult> Results() const;

 private:
  Repeat(std::string base, ExperimentKey key) : base_(std::move(base)), key_(std::move(key)) {}
  absl::Status Write() const;

  std::string base_;
  ExperimentKey key_;
  std::map<uint64_t, RunResult> runs_;  // by seed
};

// The folders of the runs that such a file names.
absl::StatusOr<std::vector<std::string>> FoldersOfRepeat(const std::string& file);

}  // namespace macaw::cli
