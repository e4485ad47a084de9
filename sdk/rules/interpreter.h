#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/peer/json.h"
#include "core/peer/peer.h"

namespace macaw::sdk::rules {

using peer::Json;

inline constexpr char kPeerName[] = "its process";  // of a rule's process, in messages

// A Python interpreter that has loaded a rule's file, and forks a process for each caller: what the
// file imports is imported once. It and all that it forked die with the thread that started it, so
// start it on the main thread. Thread-safe.
class Interpreter : public std::enable_shared_from_this<Interpreter> {
 public:
  // Runs MACAW_PYTHON, or python3 of the PATH. `text`: of the file. Errors say what is missing
  // (Python, NumPy), or what the file raised, and where.
  static absl::StatusOr<std::shared_ptr<Interpreter>> Start(const std::string& path,
                                                            absl::string_view text);
  // What the file says of its rules: a list of objects.
  const Json& rules() const { return rules_; }

  struct Forked {
    pid_t pid = -1;
    std::unique_ptr<peer::Peer> peer;
  };
  absl::StatusOr<Forked> Fork() ABSL_LOCKS_EXCLUDED(mutex_);
  // How a process that it forked has ended. Waits for the end.
  std::string HowEnded(pid_t pid) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Interpreter(std::unique_ptr<peer::Peer> control) : control_(std::move(control)) {}
  absl::StatusOr<Json> Ask(const Json& question, std::span<const int> files)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  const std::unique_ptr<peer::Peer> control_ ABSL_PT_GUARDED_BY(mutex_);
  Json rules_;
};

}  // namespace macaw::sdk::rules
