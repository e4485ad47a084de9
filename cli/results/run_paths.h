#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// The folders of the runs that these paths stand for. A folder of a sweep or a repeat stands for
// the runs that it has begun, and a file NAME-repeat.json for those that it lists, beside it (the
// file and the runs may have been moved together). Any other path stands for itself, also a folder
// whose name ends with ".json". Each folder is there once. Errors name the file.
absl::StatusOr<std::vector<std::string>> RunFolders(const std::vector<std::string>& paths);

// A sentence for each sweep or repeat at these paths with runs that RunFolders leaves out although
// they have begun: their folders are gone or cannot be read.
std::vector<std::string> UnreadableRuns(const std::vector<std::string>& paths);

// Why the folder cannot be read ("Permission denied"); "": it can.
std::string WhyUnreadable(const std::string& folder);

// As RunFolders, but of sweeps and repeats only the runs that have a result. A path that stands for
// itself is there, whatever is in it.
struct ResultFolders {
  std::vector<std::string> folders;
  // Sentences for each sweep or repeat with runs that failed, are not over, or whose folders are
  // gone or cannot be read: how many, and which.
  std::vector<std::string> left_out;
};
// Returns an error if a sweep or repeat has no run with a result.
absl::StatusOr<ResultFolders> FoldersWithResults(const std::vector<std::string>& paths);

// The folder of a job's run. `runs` is what the sweep's plan has before the names of jobs: "runs/",
// or "../BASE-" for runs beside the folder.
std::string RunOfJob(const std::string& sweep, const std::string& runs, const std::string& job);

}  // namespace macaw::cli
