#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::worker {

// A program of the node's owner that says whether the node may work now (accept.run_when): one that
// knows whether the device is idle, or charging.

// The longest that it may take.
inline constexpr Duration kOwnersCommandLimit = std::chrono::seconds(10);

// Runs the command, without a shell, in a process group of its own, which is killed after `limit`.
// Returns why the node may not work, in a few words that say nothing about the program; empty (exit
// code 0): it may. What the program prints is in the log of this process.
std::string AskOwnersCommand(const std::vector<std::string>& command, Duration limit);

// Asks again and again, with a pause between two answers, on a thread of its own. Thread-safe.
class OwnersAnswer {
 public:
  using Ask = std::function<std::string()>;  // as AskOwnersCommand

  OwnersAnswer(Ask ask, Duration pause);  // destruction waits for an answer that is under way

  // The last answer. Waits for the first one.
  std::string Last() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop(const std::stop_token& stop);

  const Ask ask_;
  const Duration pause_;
  mutable absl::Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::string answer_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace macaw::worker
