#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/fd.h"
#include "server/log/record.h"

namespace macaw::server::log {

// Appends to a run's log. Records are collected and handed to the system by Write; Sync makes them
// outlast the machine. What was not written is lost with the object. Movable; one thread.
class Writer {
 public:
  // Goes on with the log of run `run` that is there, whatever it says; else begins one. A torn
  // record at its end is cut off; damage, and the log of another run, are errors.
  static absl::StatusOr<Writer> Open(const std::string& path, const Digest& run);

  uint64_t cut_bytes() const { return cut_bytes_; }  // of a torn record, when it was opened
  // What the log says already: when the first server began (Unix time; 0: this is the first), and
  // the time of the last record.
  int64_t first_wall_ns() const { return first_wall_ns_; }
  int64_t last_ns() const { return last_ns_; }
  // Whether the run repeats another one.
  bool replays() const { return replays_; }

  // A time before that of the last record is taken for the same as that.
  void Append(int64_t ns, Record record);
  absl::Status Write();
  absl::Status Sync();  // writes, too

 private:
  explicit Writer(std::string path) : path_(std::move(path)) {}
  absl::Status ReadThrough(const Digest& run);

  std::string path_;
  Fd fd_;
  uint64_t offset_ = 0;  // everything before is in whole records
  uint64_t sequence_ = 0;
  int64_t last_ns_ = 0, first_wall_ns_ = 0;
  uint64_t cut_bytes_ = 0;
  bool replays_ = false;
  std::string collected_;
};

}  // namespace macaw::server::log
