#include "worker/day_traffic.h"

#include <utility>

#include "core/status.h"

namespace macaw::worker {

absl::StatusOr<DayTraffic> DayTraffic::Open(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(KeptBytes file, KeptBytes::Open(path, sizeof(Entry)));
  return DayTraffic(std::move(file));
}

void DayTraffic::Add(absl::CivilDay today, const fleet::Traffic& moved) {
  const int64_t day = today - absl::CivilDay(1970, 1, 1);
  Entry& kept = entry();
  // A clock that is corrected may show another day for a while. Of an earlier one nothing is known,
  // so the bytes of both days count together until the later one is over. A day beyond tomorrow
  // never was: the clock was wrong then, or is now, and the node must not wait for that day.
  if (day > kept.day || kept.day - day > 1) kept = {.day = day};
  kept.up += moved.up;
  kept.down += moved.down;
}

fleet::Traffic DayTraffic::today() const { return {.up = entry().up, .down = entry().down}; }

}  // namespace macaw::worker
