#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/admin/queue_handler.h"

namespace macaw::cli {

enum class QueuedState : uint8_t {
  kWaiting,
  kRunning,      // also while the standing server is away
  kFinished,     // all rounds, or stopped by a rule of its configuration
  kInterrupted,  // drained by an operator; `macaw-server --resume` goes on with it
  kFailed,
  kWithdrawn,
};
const char* NameOf(QueuedState state);  // "waiting", …

struct QueuedRun {
  std::string name;
  QueuedState state = QueuedState::kWaiting;
  std::string by;          // who submitted it
  std::string why;         // how it ended, or why its server was started again; often ""
  bool withdrawn = false;  // while it runs: it ends as withdrawn
  std::string request_id;  // of the submission, in hex
  absl::Time submitted, began, ended;  // whole seconds; InfinitePast: not yet
};

// The runs of a standing server, oldest first, in FOLDER/queue.json; each has a folder
// FOLDER/runs/NAME with its plan.toml. Every change is on disk before it is answered. Thread-safe.
class RunQueue {
 public:
  static absl::StatusOr<std::unique_ptr<RunQueue>> Open(const std::string& folder);

  // The plan has been checked. Refuses a name that is taken.
  absl::Status Submit(const admin::Submission& submission, absl::Time now);
  // Withdraws a run that waits. Marks one that is being done; the caller then ends it. Returns
  // whether it is being done.
  absl::StatusOr<bool> Withdraw(const std::string& name, const std::string& why, absl::Time now);
  // The next run to do: the one that was being done when the last server ended, else the oldest
  // that waits. It counts as running from here on.
  absl::StatusOr<std::optional<std::string>> Begin(absl::Time now);
  // A run that was interrupted because it was withdrawn ends as withdrawn.
  absl::Status End(const std::string& name, QueuedState state, const std::string& why,
                   absl::Time now);
  // Says why the open run is started again.
  absl::Status Note(const std::string& name, const std::string& why);

  std::vector<QueuedRun> runs() const;
  // The files of a run that operators may have: neither keys nor sessions, nor what clients keep.
  absl::StatusOr<std::vector<admin::ResultFile>> Results(const std::string& name) const;
  uint64_t ahead_of(const std::string& name) const;  // runs that wait or run before it
  std::string FolderOf(const std::string& name) const { return folder_ + "/runs/" + name; }

 private:
  explicit RunQueue(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Load();
  // Makes a change, and undoes it if it cannot be written.
  absl::Status Change(const std::function<void(std::vector<QueuedRun>&)>& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  QueuedRun* Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  mutable absl::Mutex mutex_;
  std::vector<QueuedRun> runs_ ABSL_GUARDED_BY(mutex_);
};

// A name that can be a folder: letters, digits, '-', '_', '.'; at most 64 characters.
absl::Status CheckRunName(const std::string& name);

// The runs as a JSON array: {"name", "state", "by", "why", "submitted", "began", "ended"}, times as
// RFC 3339 or "".
std::string JsonOf(const std::vector<QueuedRun>& runs);

}  // namespace macaw::cli
