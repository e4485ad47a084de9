#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/simulate/result.h"
#include "core/fd.h"

namespace macaw::cli {

// Identifies an experiment: everything that decides a result, except the seed.
struct ExperimentKey {
  std::string name, algorithm;
  std::string settings;  // a JSON object (SettingsJson), without the seed
};

// One configuration and all its seeds, as kept in the file BASE-repeat.json; the runs are in
// BASE-seedS. The file is written before a run begins and after it ends, so that the same command
// continues after a crash. One thread.
class Repeat {
 public:
  // Opens the file of the experiment, or chooses a name for a new one. `wanted` is the BASE. If
  // other files or runs use that name, takes BASE-2, BASE-3, …; with `fixed` (the user gave the
  // name) it returns an error that says what differs. With `force` the experiment begins again in
  // `wanted`, whatever is there. While the object lives, no other process can open the experiment:
  // one that begins at the same moment takes the next name, or (`fixed`, `force`) returns an error.
  static absl::StatusOr<Repeat> Open(const std::string& wanted, bool fixed, bool force,
                                     ExperimentKey key, const std::vector<uint64_t>& seeds);

  std::string file() const { return base_ + "-repeat.json"; }
  std::string FolderOf(uint64_t seed) const;
  bool Begun(uint64_t seed) const { return runs_.contains(seed); }
  bool Done(uint64_t seed) const;

  absl::Status Begin(uint64_t seed);  // written before the run's folder is made
  absl::Status Finish(RunResult result);

  // The results of all finished runs, by seed, including those that another command made.
  std::vector<RunResult> Results() const;

 private:
  Repeat(std::string base, ExperimentKey key) : base_(std::move(base)), key_(std::move(key)) {}
  // The experiment at this base; nothing if other files or runs use the name.
  static absl::StatusOr<std::optional<Repeat>> OpenAt(const std::string& base, bool fixed,
                                                      const ExperimentKey& key,
                                                      const std::vector<uint64_t>& seeds);
  absl::Status Write() const;

  std::string base_;
  ExperimentKey key_;
  std::map<uint64_t, RunResult> runs_;  // by seed
  Fd lock_;                             // no other process runs the experiment meanwhile
};

// The folders of the runs that a path means: a run's folder itself; those that a NAME-repeat.json
// names; those of a sweep's folder (cli/sweep/folder.h) that have begun, by configuration and seed.
// A folder that is no sweep's is not looked into.
absl::StatusOr<std::vector<std::string>> RunFoldersOf(const std::string& path);

}  // namespace macaw::cli
