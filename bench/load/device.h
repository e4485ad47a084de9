#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "bench/load/common.h"
#include "bench/load/training.h"
#include "core/clock.h"
#include "core/ids.h"
#include "data/dataset.h"
#include "proto/fleet/messages.h"

namespace macaw::bench {

// Times of calls. Thread-safe.
class Measured {
 public:
  void Add(double seconds) {
    absl::MutexLock lock(&mutex_);
    seconds_.push_back(seconds);
  }
  Times Take() {
    absl::MutexLock lock(&mutex_);
    return Times(std::exchange(seconds_, {}));
  }

 private:
  absl::Mutex mutex_;
  std::vector<double> seconds_ ABSL_GUARDED_BY(mutex_);
};

// Of all devices. Thread-safe.
struct Calls {
  Measured registering, beat, fetch, train, commit;
  std::atomic<size_t> repeated = 0, lost_beats = 0;  // because nobody answered
  std::atomic<bool> gone = false;                    // the server has ended
  std::atomic<size_t> not_told = 0;  // devices that had not heard by then that the run is over
};

// A device, as worker/session.cc is one: two threads use it, one that works and one that sends the
// heartbeats.
class Device {
 public:
  // It has the client of this number. All but the link must outlive it.
  Device(size_t number, Link link, const data::Dataset& dataset, Training& training, Calls& calls)
      : number_(number),
        link_(std::move(link)),
        dataset_(dataset),
        training_(training),
        calls_(calls) {}

  // First.
  void Register();
  // Works until the run is over.
  void Run();
  bool over() const { return over_; }

  // Sends a heartbeat. Returns when to send the next one, in seconds.
  double Beat();

 private:
  void Work();
  fleet::LeaseRequest Ask(Duration wait) const;
  // Before a call that nobody has answered is repeated.
  void Repeat();
  fleet::LeaseReply Lease();
  std::optional<fleet::LeaseReply> TrainAndCommit(const fleet::TrainingLease& lease);

  const size_t number_;
  const Link link_;
  const data::Dataset& dataset_;
  Training& training_;
  Calls& calls_;
  SessionId session_;
  uint64_t commits_ = 0;
  std::atomic<uint64_t> progress_ = 0;
  std::atomic<bool> over_ = false;
};

// Sends the devices' heartbeats on threads of its own.
class Hearts {
 public:
  // Of the first `count` devices, which must outlive it.
  Hearts(std::vector<std::unique_ptr<Device>>& devices, size_t count);
  ~Hearts();
  // How late the latest heartbeat since the last call was sent, in seconds: this process may be
  // too slow to send so many.
  double TakeLateness() { return late_.exchange(0); }

 private:
  void Loop(size_t thread, size_t count);

  std::vector<std::unique_ptr<Device>>& devices_;
  std::atomic<bool> stop_ = false;
  std::atomic<double> late_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace macaw::bench
