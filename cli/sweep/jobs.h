#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/process/signals.h"
#include "cli/results/result.h"

namespace macaw::cli {

// What is to be done of a job: its run up to so many rounds.
struct Task {
  std::string name;
  std::string config_file;
  std::string folder;  // of its run, begun or not
  uint64_t seed = 0;
  uint32_t rounds = 0;
  uint32_t from = 0;     // the rounds that an earlier rung has given it; 0: there is none
  bool goes_on = false;  // a later rung may give it more
};

struct JobLimits {
  uint32_t jobs = 1;                   // at a time
  uint32_t slots = 0;                  // workers.slots of each; 0: as configured
  uint64_t memory = 0;                 // bytes of all jobs together
  std::vector<std::string> arguments;  // of each `macaw simulate`, beside those that it needs
};

// What is told while jobs run, on the thread that called RunJobs.
struct JobEvents {
  std::function<void(const Task&)> on_begin;
  std::function<void(const Task&, uint32_t round)> on_round;  // rounds of a resumed run count on
  // It is over: with a result, or failed, and then `why`.
  std::function<absl::Status(const Task&, const absl::StatusOr<RunResult>& result)> on_end;
  // What a run tells while it goes on, such as: a worker was started again.
  std::function<void(const Task&, const std::string& message)> on_message;
  std::function<void(const std::string& message)> say;
};

// Runs each task as a `macaw simulate` of its own, so many at a time, in their order. A run that
// was begun goes on from its checkpoint, and one that is over counts as it is. A process that is
// killed is started again, five times in ten minutes at most. Another job begins only while the
// largest that has been seen so far would still fit into the memory; one runs always. Returns false
// when a signal ended it: then the runs have been told to end in order (after a second signal they
// are killed). Call on the main thread, which must have made `signals`.
absl::StatusOr<bool> RunJobs(const std::vector<Task>& tasks, const JobLimits& limits,
                             SignalFd& signals, const JobEvents& events);

}  // namespace macaw::cli
