#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cli/config/track.h"
#include "cli/track/delivery.h"
#include "core/clock.h"

namespace macaw::cli {

// All trackers of a run, each with its own delivery, so that none waits for another.
class Tracking {
 public:
  // Errors name a tracker and what it lacks. None of them is connected yet.
  static absl::StatusOr<std::unique_ptr<Tracking>> Start(const std::string& folder,
                                                         const TrackConfig& config);
  // The lines that the deliveries have said since the last call. Any thread.
  std::vector<std::string> TakeLines() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for all of them together, `at_most` so long. True: everything is delivered.
  bool Finish(Duration at_most);

 private:
  Tracking() = default;

  absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Delivery>> deliveries_;  // last: their threads use what is above
};

// Whether these trackers can be used. Errors name the key.
absl::Status CheckTrackers(const TrackConfig& config);

// What RUN/config.toml says of trackers.
absl::StatusOr<TrackConfig> ReadTrackConfig(const std::string& folder);

}  // namespace macaw::cli
