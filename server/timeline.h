#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/files.h"
#include "server/engine/host.h"

namespace macaw::server {

// A run's timeline.json: who trained when, in Chrome's trace format, for Perfetto, chrome://tracing
// and `macaw timeline`. One process per worker with a thread per slot, and one for the server,
// whose phases are cut into "prepare", "train" and "apply". Times are microseconds by the server's
// clock; the sessions of a resumed run follow each other, what a crash has undone included. A turn
// is put earlier than it was by the time that its lease took to arrive.
//
// The file of any run stays at some tens of MB: after so many events only every second round is
// written, then every fourth, and so on, and of a phase with more turns than that only some. One
// thread.
class Timeline {
 public:
  // `resume`: goes on after what the file holds.
  static absl::StatusOr<Timeline> Open(const std::string& path, uint32_t epoch, bool resume);

  absl::Status AddWorker(WorkerId session, const std::string& name, uint32_t slots);
  // `origin`: when this session of the server began; `closed`: when the algorithm had moved the
  // model.
  absl::Status AddPhase(const PhaseReport& report, TimePoint origin, TimePoint closed);
  // Ends the list, so that the file is JSON; what is added later is dropped. A run that is resumed
  // opens it again.
  absl::Status Close();

 private:
  Timeline(LineFile file, uint32_t epoch) : file_(std::move(file)), epoch_(epoch) {}
  uint64_t ProcessOf(WorkerId session) const;
  void Count(uint64_t events);
  absl::Status Append(const std::string& event);

  LineFile file_;
  uint32_t epoch_;
  Duration before_{};    // the sessions before this one took
  uint64_t events_ = 0;  // written at this stride
  uint32_t stride_ = 1;  // of the rounds written
  bool closed_ = false;
};

}  // namespace macaw::server
