#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cli/track/rows.h"
#include "cli/track/tracker.h"
#include "core/clock.h"
#include "core/fd.h"

namespace macaw::cli {

struct DeliveryOptions {
  std::string folder;  // of the run
  std::string name;    // of the tracker
  // Gets a line when deliveries begin to fail, when they go on, and when rows are left at the end.
  // Called on the delivery's thread.
  std::function<void(const std::string& line)> say;
  Duration look_every = std::chrono::milliseconds(500);  // for new rows
  Duration retry_after = std::chrono::seconds(1);        // doubles with each failure in a row …
  Duration retry_at_most = std::chrono::seconds(60);     // … up to this
  size_t rows_at_once = 200;
};

// Delivers the rows of a run to one tracker, on a thread of its own, from the run's folder. So it
// neither slows nor fails the run, and it also delivers what was written long ago. Two deliveries
// to the same tracker of a run exclude each other, also those of two programs. Thread-safe.
class Delivery {
 public:
  Delivery(DeliveryOptions options, std::unique_ptr<Tracker> tracker);
  ~Delivery();  // interrupts what has not finished
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // No further rows will be written.
  void NoMoreRows() ABSL_LOCKS_EXCLUDED(mutex_);
  // After NoMoreRows: waits until all rows are delivered, `at_most` so long; then interrupts, and
  // says how many are left and how they can be delivered. True: none.
  bool Finish(Duration at_most) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Phase : uint8_t { kFollowing, kFinishing, kInterrupted };

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  // One try: delivers what there is. True: everything that will ever be there.
  absl::StatusOr<bool> Step() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Open();
  void Wait(Duration time, Phase at) ABSL_LOCKS_EXCLUDED(mutex_);  // or until the phase changes
  Phase phase() const ABSL_LOCKS_EXCLUDED(mutex_);
  void SayFailure(const absl::Status& status);
  std::string Left(int64_t reached) const;  // "12 rows"; "": none

  const DeliveryOptions options_;
  const std::unique_ptr<Tracker> tracker_;
  // the delivery's thread
  RowReader reader_;
  Fd lock_;
  bool open_ = false;
  int64_t delivered_ = kNoRound;
  int failures_ = 0;  // in a row

  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kFollowing;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t reached_ ABSL_GUARDED_BY(mutex_) = kNoRound;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // of the newest try
  std::thread thread_;
};

}  // namespace macaw::cli
