#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/child.h"
#include "core/fd.h"
#include "plan/local.h"
#include "sdk/rules/arena.h"

namespace macaw::sdk::rules {

using Json = nlohmann::json;

// A Python interpreter that has loaded a rule's file, and forks a process for whoever asks: what
// the file imports is imported once. It and all that it forked die with the thread that started it,
// so start it on the main thread. Thread-safe.
class Interpreter {
 public:
  // Runs MACAW_PYTHON, or python3 of the PATH. `text`: of the file. Errors say what is missing
  // (Python, NumPy), or what the file raised, and where.
  static absl::StatusOr<std::shared_ptr<Interpreter>> Start(const std::string& path,
                                                            absl::string_view text);
  // What the file says of its rules: a list of objects.
  const Json& rules() const { return rules_; }

  struct Forked {
    pid_t pid = -1;
    Fd channel;
  };
  absl::StatusOr<Forked> Fork() ABSL_LOCKS_EXCLUDED(mutex_);
  // How a process that it forked has ended. Waits for the end.
  std::string HowEnded(pid_t pid) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Interpreter(Child child, Fd control) : child_(std::move(child)), control_(std::move(control)) {}
  absl::StatusOr<Json> Ask(const Json& question, std::span<const int> files)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Child child_;
  Fd control_ ABSL_GUARDED_BY(mutex_);
  Json rules_;
};

// The processes of one half of a rule: as many as it is asked by threads at once. Thread-safe.
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
  // `local`: what [local] is in this turn; null: nobody asks.
  absl::StatusOr<Json> Ask(Json question, std::span<const Arena* const> arenas,
                           const LocalConfig* local = nullptr);
  // Its processes forget an arena at the next question.
  void Forget(const Arena& arena) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Process {
    pid_t pid = -1;
    Fd channel;
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

// Every key of [local], without the schedule, which is part of lr.
Json ToJson(const LocalConfig& local);
Json ToJson(const settings::Value& value);

}  // namespace macaw::sdk::rules
