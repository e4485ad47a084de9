#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/inputs.h"
#include "core/child.h"

namespace macaw::cli {

// A run's folder. While the object lives, no other process can run in it.
struct HeldFolder {
  std::string path;
  Fd lock;
};

// Whether something exists at `path`, other than an empty folder.
bool IsTaken(const std::string& path);

// The first line of a run's node.toml, by which a run is known before its server has begun.
inline constexpr char kNodeFileHeading[] = "# What the workers of this run read.";

// Makes the folder of a new run. `out` is a folder's path, which must be new or empty; "" stands
// for runs/<name>, or runs/<name>-2, -3, … when that is taken. With `force` a run that is there
// already is removed first: the files that a run writes, and nothing else. It is refused if one of
// `inputs` is among them. In a folder without a run nothing is removed: `force` then runs in it,
// beside what is there, unless a name that a run writes is taken.
absl::StatusOr<HeldFolder> MakeRunFolder(const std::string& out, const std::string& name,
                                         bool force, const std::vector<NamedInput>& inputs = {});

// Returns an error if one of the inputs is among the files that `force` would remove with the run
// in this folder. A folder that holds no run loses none.
absl::Status CheckInputsStay(const std::string& path, const std::vector<NamedInput>& inputs);

// Makes the folder one that holds a run, before its server has begun: `force` may replace it.
absl::Status MarkAsRun(const std::string& path);

// Opens the folder of a run that is resumed.
absl::StatusOr<HeldFolder> OpenRunFolder(const std::string& path);

// A private folder for the socket of a run, and for files that only its processes should read. Its
// path is short enough for a socket (107 bytes). The destructor removes it. Make also removes the
// folders of processes that were killed.
class SocketFolder {
 public:
  static absl::StatusOr<SocketFolder> Make();
  SocketFolder(SocketFolder&& other) noexcept;
  SocketFolder& operator=(SocketFolder&& other) noexcept;
  ~SocketFolder();
  std::string socket() const { return path_ + "/fleet"; }
  // The list of callers, a file that only this user can read.
  std::string callers() const { return path_ + "/callers.json"; }

 private:
  explicit SocketFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  Fd lock_;  // shows that the folder is in use
};

}  // namespace macaw::cli
