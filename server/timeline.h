#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/files.h"
#include "server/engine/host.h"

namespace macaw::server {

// A run's timeline.json: who trained when, in Chrome's trace format, for Perfetto, chrome://tracing
// and `macaw timeline`. One process per worker with a thread per slot, and one for the server, whose
// phases are cut into "prepare", "train" and "apply". Times are microseconds since the run began,
// by the server's clock.
//
// A run of any length leaves a file of some MB: once so many turns are written, only every second
// round is, then every fourth, and so on. One thread.
class Timeline {
 public:
  // `resume`: goes on after what the file holds.
  static absl::StatusOr<Timeline> Open(const std::string& path, uint32_t epoch, bool resume);

  absl::Status AddWorker(WorkerId session, const std::string& name, uint32_t slots);
  // `origin`: when the run began; `closed`: when the algorithm had moved the model.
  absl::Status AddPhase(const PhaseReport& report, TimePoint origin, TimePoint closed);
  // Ends the list, so that the file is JSON. A run that is resumed opens it again.
  absl::Status Close();

 private:
  Timeline(LineFile file, uint32_t epoch) : file_(std::move(file)), epoch_(epoch) {}
  uint64_t ProcessOf(WorkerId session) const;
  absl::Status Append(const std::string& event);

  LineFile file_;
  uint32_t epoch_;
  uint64_t turns_ = 0;   // written at this stride
  uint32_t stride_ = 1;  // of the rounds written
};

}  // namespace macaw::server
