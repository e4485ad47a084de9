#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/peer/peer.h"
#include "core/peer/shared_vectors.h"
#include "core/work_counter.h"
#include "training/api/trainer.h"
#include "training/process/messages.h"
#include "training/process/shared_rows.h"

namespace macaw::training::process {

// The owner's program, which has said what it is. It finds the vectors, and the rows if it is given
// them, under the numbers in MACAW_MEMORY and MACAW_ROWS, and in MACAW_SLOT and MACAW_SLOTS which
// one of the host's slots it is. One thread at a time.
struct Resident {
  ProgramOptions options;
  uint32_t slot = 0;
  std::string hello;
  std::shared_ptr<peer::SharedVectors> memory;
  std::shared_ptr<SharedRows> rows;  // null: the program has rows of its own
  Ready ready;
  std::unique_ptr<peer::Peer> program;
  std::thread::id thread;  // it ends with the thread that started it

  // Its answer. After an error it is gone.
  absl::StatusOr<std::string> Ask(const std::string& question, WorkCounter* work) const;
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
