#include "cli/simulate/run_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;

// Everything that a run writes into its folder.
constexpr const char* kRunFiles[] = {
    "config.toml",     "summary.json", "metrics.jsonl", "events.jsonl",           "clients.jsonl",
    "timeline.json",   "epoch",        "checkpoints",   "model.safetensors",      "logs",
    "scratch",         "state",        "trace",         "model-init.safetensors", ".lock",
    "config.toml.next"};

absl::Status RemoveRun(const std::string& path) {
  for (const char* name : kRunFiles) {
    std::error_code error;
    fs::remove_all(fs::path(path) / name, error);
    if (error)
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path, "/", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunFolder> Hold(const std::string& path) {
  const std::string name = absl::StrCat(path, "/.lock");
  Fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write into ", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("another process is running in ", path));
  }
  return RunFolder{path, std::move(lock)};
}

absl::StatusOr<RunFolder> MakeAndHold(const std::string& path) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(path, "/logs")));
  return Hold(path);
}

}  // namespace

bool IsTaken(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error));
}

absl::StatusOr<RunFolder> MakeRunFolder(const std::string& out, const std::string& name,
                                        bool force) {
  const std::string wanted = out.empty() ? absl::StrCat("runs/", name) : out;
  if (!IsTaken(wanted)) return MakeAndHold(wanted);
  if (force) {
    MACAW_RETURN_IF_ERROR(Hold(wanted).status());  // not under the feet of a run that goes on
    MACAW_RETURN_IF_ERROR(RemoveRun(wanted));
    return MakeAndHold(wanted);
  }
  if (!out.empty()) {
    const bool run = FileExists(wanted + "/config.toml");
    return absl::AlreadyExistsError(absl::StrCat(
        wanted, run ? " holds a run already; --resume goes on with it, --force replaces it"
                    : " is not empty; name a new folder, or --force to run in it"));
  }
  for (int number = 2;; ++number) {
    const std::string next = absl::StrCat(wanted, "-", number);
    if (!IsTaken(next)) return MakeAndHold(next);
  }
}

absl::StatusOr<RunFolder> OpenRunFolder(const std::string& path) {
  if (!FileExists(path + "/config.toml")) {
    return absl::NotFoundError(
        absl::StrCat(path, " holds no run to resume: it has no config.toml"));
  }
  return MakeAndHold(path);
}

absl::StatusOr<SocketFolder> SocketFolder::Make() {
  std::string path = "/tmp/macaw-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno,
                               "cannot make a folder for the socket in /tmp (--tcp does without)");
  }
  return SocketFolder(path);
}

SocketFolder::SocketFolder(SocketFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}

SocketFolder& SocketFolder::operator=(SocketFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace macaw::cli
