#include "cli/simulate/run_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/process/lock.h"
#include "core/files.h"
#include "core/status.h"
#include "server/base_file.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kBaseFile[] = "base.safetensors";

// Everything that a run writes into its folder.
constexpr const char* kRunFiles[] = {"config.toml",
                                     "summary.json",
                                     "metrics.jsonl",
                                     "confusion.json",
                                     "events.jsonl",
                                     "clients.jsonl",
                                     "clients_evaluated.json",
                                     "contributions.jsonl",
                                     "normalisation.npz",
                                     "timeline.json",
                                     "epoch",
                                     "checkpoints",
                                     "model.safetensors",
                                     "model.best.safetensors",
                                     "trained.safetensors",
                                     "base.safetensors",
                                     "model.round.safetensors",
                                     "models",
                                     "unlearned",
                                     "metrics.own.jsonl",
                                     "logs",
                                     "scratch",
                                     "state",
                                     "trace",
                                     "model-init.safetensors",
                                     "address",
                                     "authority-path",
                                     "journal",
                                     "run-id",
                                     "config.toml.next",
                                     "node.toml",
                                     "node.toml.next",
                                     "rounds.log",
                                     "admin.sock",
                                     "admin-address",
                                     "owners",
                                     "holdings",
                                     "metrics.csv",
                                     "tensorboard",
                                     "track",
                                     "wandb"};

constexpr char kLockFile[] = ".lock";

// Whether a run has begun there. Others may have a config.toml, or a node.toml, too: a server's
// first files show it, or the first line of what its workers read.
bool HoldsRun(const std::string& path) {
  const bool has_begun = FileExists(path + "/run-id") || FileExists(path + "/rounds.log");
  if (has_begun && FileExists(path + "/config.toml")) return true;
  std::ifstream file(path + "/node.toml");
  std::string line;
  return std::getline(file, line) && line == kNodeFileHeading;
}

// A user may have a base.safetensors of their own, which a run does not replace.
bool IsOfRun(const fs::path& file) {
  return file.filename() != kBaseFile || server::IsKeptBase(file.string());
}

// In a folder that holds no run: a file of the user's, or a folder with something in it, that a run
// would write over or into. Empty: there is none.
std::string TakenName(const std::string& path) {
  for (const char* name : kRunFiles) {
    const fs::path file = fs::path(path) / name;
    std::error_code error;
    const fs::file_status there = fs::symlink_status(file, error);
    if (!fs::exists(there) || !IsOfRun(file)) continue;
    if (!fs::is_directory(there) || !fs::is_empty(file, error) || error) return name;
  }
  return "";
}

absl::Status RefuseTaken(const std::string& path, const std::string& name) {
  return absl::AlreadyExistsError(absl::StrCat(path, " holds no run, but has ", name,
                                               ", a name that a run uses: name another --out"));
}

// All but the lock, which the caller holds.
absl::Status RemoveRun(const std::string& path) {
  for (const char* name : kRunFiles) {
    const fs::path file = fs::path(path) / name;
    if (!IsOfRun(file)) continue;
    std::error_code error;
    fs::remove_all(file, error);
    if (error)
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path, "/", name));
  }
  return absl::OkStatus();
}

// Whether `path` is `above` or lies below it.
bool IsAtOrBelow(const fs::path& path, const fs::path& above) {
  const auto [parted, rest] = std::ranges::mismatch(above, path);
  return parted == above.end();
}

}  // namespace

absl::Status CheckInputsStay(const std::string& path, const std::vector<NamedInput>& inputs) {
  if (!HoldsRun(path)) return absl::OkStatus();
  std::error_code error;
  for (const NamedInput& input : inputs) {
    const fs::path read = fs::weakly_canonical(input.path, error);
    for (const char* name : kRunFiles) {
      const fs::path file = fs::weakly_canonical(fs::path(path) / name, error);
      if (read.empty() || file.empty() || !IsAtOrBelow(read, file) || !IsOfRun(file)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          input.key, " is ", input.path, ", which --force would remove with the run in ", path,
          ": copy it to another folder first, or name another --out"));
    }
  }
  return absl::OkStatus();
}

absl::Status MarkAsRun(const std::string& path) {
  return AtomicWriteFile(path + "/node.toml", absl::StrCat(kNodeFileHeading, "\n"));
}

namespace {

absl::StatusOr<HeldFolder> Hold(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(Fd lock, LockFolder(path));
  return HeldFolder{path, std::move(lock)};
}

absl::StatusOr<HeldFolder> MakeAndHold(const std::string& path) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(path, "/logs")));
  return Hold(path);
}

// Whether something is there, other than a folder with at most the lock file.
bool IsInUse(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  if (!fs::is_directory(path, error)) return true;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != kLockFile) return true;
  }
  return static_cast<bool>(error);
}

// Makes the folder, or takes one that is empty, and holds it. Nothing if something is in it, or
// another process has just taken it: of those that begin at one moment, one gets each folder.
absl::StatusOr<std::optional<HeldFolder>> Claim(const std::string& path) {
  if (IsInUse(path)) return std::nullopt;
  MACAW_RETURN_IF_ERROR(MakeDirectories(path));
  MACAW_ASSIGN_OR_RETURN(Fd lock, TryLockFolder(path));
  // A run may have been there and ended between the look and the lock.
  if (!lock.open() || IsInUse(path)) return std::nullopt;
  MACAW_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(path, "/logs")));
  return HeldFolder{path, std::move(lock)};
}

absl::StatusOr<HeldFolder> TakeByForce(const std::string& path,
                                       const std::vector<NamedInput>& inputs) {
  // Before the lock, which is a file: what is refused is left as it is.
  if (const std::string name = TakenName(path); !HoldsRun(path) && !name.empty())
    return RefuseTaken(path, name);
  MACAW_RETURN_IF_ERROR(CheckInputsStay(path, inputs));
  MACAW_ASSIGN_OR_RETURN(HeldFolder held, Hold(path));  // fails if a process is running in it
  if (HoldsRun(path)) MACAW_RETURN_IF_ERROR(RemoveRun(path));
  MACAW_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(path, "/logs")));
  return held;
}

constexpr char kSocketFolders[] = "/tmp/macaw-XXXXXX";
constexpr char kSocketLock[] = "/.lock";

// Removes the socket folders of this user that no process holds any more.
void SweepSocketFolders() {
  const fs::path pattern = kSocketFolders;
  const std::string name = pattern.filename().string();
  const std::string prefix = name.substr(0, name.find('X'));
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(pattern.parent_path(), ignored)) {
    const std::string found = entry.path().filename().string();
    struct stat info {};
    if (found.size() != name.size() || !found.starts_with(prefix) ||
        ::lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != ::geteuid()) {
      continue;
    }
    // The folder is locked while it is removed. A folder without the lock file is just being made,
    // or belongs to another user.
    const Fd lock = TryLockFile(entry.path().string() + kSocketLock);
    if (lock.open()) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

bool IsTaken(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error));
}

absl::StatusOr<HeldFolder> MakeRunFolder(const std::string& out, const std::string& name,
                                         bool force, const std::vector<NamedInput>& inputs) {
  const std::string wanted = out.empty() ? absl::StrCat("runs/", name) : out;
  std::error_code ignored;
  if (fs::exists(wanted, ignored) && !fs::is_directory(wanted, ignored)) {
    return absl::AlreadyExistsError(
        absl::StrCat(wanted, " is a file; ",
                     out.empty() ? "a run's folder would go there: set run.name"
                                 : "--out (or run.out) names the folder of a run"));
  }
  if (force && IsTaken(wanted)) return TakeByForce(wanted, inputs);
  MACAW_ASSIGN_OR_RETURN(std::optional<HeldFolder> held, Claim(wanted));
  for (int number = 2; out.empty() && !held.has_value(); ++number) {
    MACAW_ASSIGN_OR_RETURN(held, Claim(absl::StrCat(wanted, "-", number)));
  }
  if (held.has_value()) return *std::move(held);
  // Another process has begun in it, or begins.
  if (!IsInUse(wanted)) MACAW_RETURN_IF_ERROR(Hold(wanted).status());
  if (HoldsRun(wanted)) {
    return absl::AlreadyExistsError(absl::StrCat(
        wanted, " holds a run already; --resume goes on with it, --force replaces it"));
  }
  if (const std::string taken = TakenName(wanted); !taken.empty())
    return RefuseTaken(wanted, taken);
  return absl::AlreadyExistsError(
      absl::StrCat(wanted, " is not empty; name a new folder, or --force to run in it"));
}

absl::StatusOr<HeldFolder> OpenRunFolder(const std::string& path) {
  if (!FileExists(path + "/config.toml")) {
    return MissingFile(path + "/config.toml",
                       absl::StrCat(path, " holds no run to resume: it has no config.toml"));
  }
  return MakeAndHold(path);
}

absl::StatusOr<SocketFolder> SocketFolder::Make() {
  SweepSocketFolders();
  std::string path = kSocketFolders;
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno,
                               "cannot make a folder for the socket in /tmp (--tcp does without)");
  }
  SocketFolder folder(path);
  MACAW_ASSIGN_OR_RETURN(folder.lock_, MakeLockedFile(path + kSocketLock));
  return folder;
}

SocketFolder::SocketFolder(SocketFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

SocketFolder& SocketFolder::operator=(SocketFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace macaw::cli
