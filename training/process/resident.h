#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "training/api/trainer.h"
#include "training/process/messages.h"
#include "training/process/program.h"
#include "training/process/shared_rows.h"
#include "training/process/shared_vectors.h"

namespace macaw::training::process {

// A program that has said what it is.
struct Resident {
  ProgramOptions options;
  uint32_t slot = 0;
  std::string hello;
  std::shared_ptr<SharedVectors> memory;
  std::shared_ptr<SharedRows> rows;  // null: the program has rows of its own
  Ready ready;
  std::unique_ptr<Program> program;
  std::thread::id thread;  // it ends with the thread that started it
};

// Starts workers.command for the setup's slot and asks what it is. An error names the command.
absl::StatusOr<Resident> StartResident(const TrainerSetup& setup);

// One program that was started to ask for its name, or to try a batch, and waits for its slot, the
// first one. Starting one may take seconds. Thread-safe.
class WaitingRoom {
 public:
  void Give(Resident resident) ABSL_LOCKS_EXCLUDED(mutex_);
  // The program that waits, if it was started for this setup.
  std::optional<Resident> Take(const TrainerSetup& setup) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  std::optional<Resident> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::training::process
