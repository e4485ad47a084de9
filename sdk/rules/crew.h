#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "plan/local.h"
#include "sdk/rules/arena.h"
#include "sdk/rules/interpreter.h"

namespace macaw::sdk::rules {

// The processes of one half of a rule: as many as threads ask at once. Thread-safe.
class Crew {
 public:
  // `opening`: the first question to each process. `seconds`: the longest that a call may take.
  Crew(std::shared_ptr<Interpreter> interpreter, Json opening, double seconds);
  ~Crew();  // its processes end

  // The answer to the opening.
  absl::StatusOr<Json> Open();
  // Asks any idle process, which is given the descriptors of arenas that it does not know. An
  // exception of the rule is an InvalidArgument error, since it would come again. A process that
  // ends or takes too long is an Internal error.
  // `local`: what [local] is in this turn; null: the question does not need it.
  absl::StatusOr<Json> Ask(Json question, std::span<const Arena* const> arenas,
                           const LocalConfig* local = nullptr);
  // Its processes forget an arena at the next question.
  void Forget(const Arena& arena) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Process {
    pid_t pid = -1;
    std::unique_ptr<peer::Peer> peer;
    std::set<uint64_t> arenas;         // that it knows
    std::vector<uint64_t> gone;        // of these, those to forget
    std::optional<LocalConfig> local;  // that it was told last
    int processor = -1;                // that it is kept on; -1: on any
  };
  absl::StatusOr<std::unique_ptr<Process>> Take(Json* opened) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Json> Call(Process& process, const Json& question, std::span<const int> files);

  const std::shared_ptr<Interpreter> interpreter_;
  const Json opening_;
  const double seconds_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Process>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::sdk::rules
