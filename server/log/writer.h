#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/record_file.h"
#include "server/log/record.h"

namespace macaw::server::log {

// Where a log ends after a crash.
struct KnownEnd {
  uint64_t synced = UINT64_MAX;  // see Reader::Open
  uint64_t cut = UINT64_MAX;     // the records from this offset on are dropped
};

// Appends to a run's log. Append collects records, Write passes them to the operating system, and
// Sync makes them survive a crash of the machine. Records that were not written are lost with the
// object. Movable; one thread.
class Writer {
 public:
  // Opens the log of run `run` for appending, or creates it. Cuts off what is not part of it: a
  // torn record, and what `known` says. Returns an error if the log is damaged or belongs to
  // another run.
  static absl::StatusOr<Writer> Open(const std::string& path, const Digest& run,
                                     KnownEnd known = {});

  uint64_t cut_bytes() const { return cut_bytes_; }  // that Open cut off
  // From the records that the log had at Open: the start of the first server (Unix time; 0: this
  // is the first), and the time of the last record. Both in nanoseconds.
  int64_t first_wall_ns() const { return first_wall_ns_; }
  int64_t last_ns() const { return last_ns_; }
  // Whether the run repeats another run.
  bool replays() const { return replays_; }

  // If `ns` is before the last record's time, the record gets the last record's time.
  void Append(int64_t ns, Record record);
  absl::Status Write();
  absl::Status Sync();                            // calls Write first
  uint64_t bytes() const { return file_.end(); }  // of the records that are written

 private:
  Writer() = default;
  // Returns where the complete records end.
  absl::StatusOr<uint64_t> ReadThrough(const std::string& path, const Digest& run, KnownEnd known);

  RecordFile file_;
  uint64_t sequence_ = 0;
  int64_t last_ns_ = 0, first_wall_ns_ = 0;
  uint64_t cut_bytes_ = 0;
  bool replays_ = false;
  std::string collected_;
};

}  // namespace macaw::server::log
