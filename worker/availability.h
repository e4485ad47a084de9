#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/fleet/link.h"
#include "worker/acceptance.h"
#include "worker/day_traffic.h"
#include "worker/hours.h"
#include "worker/owners_command.h"

namespace macaw::worker {

// Whether a node's owner lets it work now: the conditions of [accept] that change with time.
// Thread-safe.
class Availability {
 public:
  // What it looks at. Tests give their own.
  struct World {
    std::function<absl::Time()> now = [] { return absl::Now(); };
    absl::TimeZone zone = absl::LocalTimeZone();
    OwnersAnswer::Ask ask;  // default: runs accept.run_when
    // Bytes that this process has moved so far.
    std::function<fleet::Traffic()> traffic = [] { return fleet::Traffic(); };
  };
  struct Answer {
    std::string declined;  // which condition does not hold, for the server; empty: it may
    Duration ask_again{};  // when that may change; 0: nobody knows
    bool available() const { return declined.empty(); }
  };

  // `file`: where the day's traffic is kept. Empty: nowhere, which is an error if accept limits it.
  static absl::StatusOr<std::unique_ptr<Availability>> Open(const AcceptConfig& accept,
                                                            const std::string& file, World world);

  // What the next work will move. Work that would go beyond a limit is not begun.
  void Expect(const fleet::Traffic& work) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first call waits for the owner's command.
  Answer Now() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Availability(const AcceptConfig& accept, std::vector<Hours> hours, DayTraffic traffic,
               World world);
  Answer OutsideHours(absl::Time now) const;
  Answer AfterLimit(absl::Time now, const char* key) const;

  const AcceptConfig accept_;
  const std::vector<Hours> hours_;
  const World world_;
  std::optional<OwnersAnswer> command_;
  absl::Mutex mutex_;
  DayTraffic traffic_ ABSL_GUARDED_BY(mutex_);
  fleet::Traffic counted_ ABSL_GUARDED_BY(mutex_);  // of this process, already in traffic_
  fleet::Traffic work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::worker
