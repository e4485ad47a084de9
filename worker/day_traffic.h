#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "proto/fleet/link.h"
#include "worker/kept_bytes.h"

namespace macaw::worker {

// How much a node has sent and received today, in a small file that outlives its process. One
// thread at a time.
class DayTraffic {
 public:
  // With an empty path nothing is kept.
  static absl::StatusOr<DayTraffic> Open(const std::string& path);

  // Bytes that were moved since the last call. They count for `today`, on which what was counted
  // for an earlier day is forgotten. If the clock was set back by a day, what is counted stays, and
  // these are added.
  void Add(absl::CivilDay today, const fleet::Traffic& moved);
  fleet::Traffic today() const;

 private:
  struct Entry {
    int64_t day = 0;  // after 1970-01-01
    uint64_t up = 0, down = 0;
  };
  explicit DayTraffic(KeptBytes file) : file_(std::move(file)) {}
  Entry& entry() { return *reinterpret_cast<Entry*>(file_.bytes().data()); }
  const Entry& entry() const { return *reinterpret_cast<const Entry*>(file_.bytes().data()); }

  KeptBytes file_;
};

}  // namespace macaw::worker
