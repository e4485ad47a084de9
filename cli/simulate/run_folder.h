#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/process/child.h"

namespace macaw::cli {

// A run's folder, held against any other process that would run in it for as long as the object
// lives.
struct HeldFolder {
  std::string path;
  Fd lock;
};

// Whether something is there that is not an empty folder.
bool IsTaken(const std::string& path);

// Makes the folder of a new run. `out` is a folder's path, which must be new or empty; "" stands
// for runs/<name>, or runs/<name>-2, -3, … when that is taken. With `force` a run that is there
// already is removed first: the files that a run writes, and nothing else.
absl::StatusOr<HeldFolder> MakeRunFolder(const std::string& out, const std::string& name,
                                         bool force);

// The folder of a run that goes on.
absl::StatusOr<HeldFolder> OpenRunFolder(const std::string& path);

// A private folder for a socket and what only the run's processes should know, with a path short
// enough for one (107 bytes); removed with the object. Those of processes that were killed before
// they could remove theirs are removed by the next Make.
class SocketFolder {
 public:
  static absl::StatusOr<SocketFolder> Make();
  SocketFolder(SocketFolder&& other) noexcept;
  SocketFolder& operator=(SocketFolder&& other) noexcept;
  ~SocketFolder();
  std::string socket() const { return path_ + "/fleet"; }
  // Who may call: a file that only this user can read.
  std::string callers() const { return path_ + "/callers.json"; }

 private:
  explicit SocketFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  Fd lock_;  // says that somebody lives here
};

}  // namespace macaw::cli
