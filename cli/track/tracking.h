#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/config/track.h"
#include "cli/process/line_reader.h"
#include "core/child.h"
#include "core/clock.h"
#include "core/fd.h"

namespace macaw::cli {

// The process that hands a run's rows to its trackers: python/macaw/track.py, whose text is in the
// program. It reads the run's folder, so it neither slows nor fails the run. What packages print
// goes to FOLDER/logs/track.log. Main thread only (core/child.h).
class Tracking {
 public:
  Tracking() = default;  // no process
  // Starts the process, or none where `config` names no tracker. It delivers the rows that are
  // there and those that are written until Finish, and then waits `at_most` for its trackers. An
  // error says why Python cannot be started and what to do.
  static absl::StatusOr<Tracking> Start(const std::string& folder, const TrackConfig& config,
                                        Duration at_most);

  // What the process has said since the last call. Does not wait.
  std::vector<std::string> TakeLines();
  // No further rows will be written: waits for the end of the process, and meanwhile takes what it
  // says. True: every row has been delivered. Otherwise TakeLines() has what is left, and why.
  // `signals`: a descriptor (SignalFd) that ends the wait, and the process, when it is readable;
  // -1: none does.
  bool Finish(int signals = -1);

 private:
  enum class Waited : uint8_t { kEnded, kLate, kInterrupted };
  Waited WaitForEnd(int signals);
  void ReadSaid();  // once; blocks unless something is there

  std::optional<Child> child_;
  Fd until_;  // the process follows the run until this end is closed
  Fd said_;
  LineReader reader_;
  std::vector<std::string> lines_;
  std::string python_;
  bool has_spoken_ = false;  // the process has said what is left, and why
  Duration at_most_{};
};

// Refuses what cannot be right, before a run begins. Errors name the key.
absl::Status CheckTrackers(const TrackConfig& config);

// What RUN/config.toml says of trackers.
absl::StatusOr<TrackConfig> ReadTrackConfig(const std::string& folder);

}  // namespace macaw::cli
