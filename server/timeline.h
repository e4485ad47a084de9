#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/files.h"
#include "server/engine/phase.h"

namespace macaw::server {

// A run's timeline.json: when each client was trained, in Chrome's trace format, for Perfetto,
// chrome://tracing and `macaw timeline`. It has one process per worker, with a thread per slot, and
// one process for the server, whose phases are cut into "prepare", "train" and "apply". Times are
// in microseconds on the server's clock. The sessions of a resumed run follow each other, including
// rounds that a crash has undone. A turn is shown too early by the time that its lease took to
// reach the worker.
//
// The file of any run stays at some tens of MB: after a fixed number of events only every second
// round is written, then every fourth, and so on. Of a phase with more turns than this number, only
// some turns are written. One thread.
class Timeline {
 public:
  // `resume`: appends to the file. False: starts an empty file.
  static absl::StatusOr<Timeline> Open(const std::string& path, uint32_t epoch, bool resume);

  absl::Status AddWorker(WorkerId session, const std::string& name, uint32_t slots);
  // `origin`: start of this session of the server; `closed`: when the algorithm had moved the
  // model.
  absl::Status AddPhase(const PhaseReport& report, TimePoint origin, TimePoint closed);
  // Ends the list, so that the file is valid JSON. Later additions are dropped. A resumed run opens
  // the list again.
  absl::Status Close();

 private:
  Timeline(LineFile file, uint32_t epoch) : file_(std::move(file)), epoch_(epoch) {}
  uint64_t ProcessOf(WorkerId session) const;
  void Count(uint64_t events);
  absl::Status Append(const std::string& event);

  LineFile file_;
  uint32_t epoch_;
  Duration before_{};    // total duration of the earlier sessions
  uint64_t events_ = 0;  // written at this stride
  uint32_t stride_ = 1;  // every stride_-th round is written
  bool closed_ = false;
};

}  // namespace macaw::server
