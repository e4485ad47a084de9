#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace macaw::worker {

// A time of day from `begin` to before `end`, in minutes after midnight. It goes over midnight if
// `end` is not after `begin`.
struct Hours {
  int begin = 0, end = 0;

  bool Contain(absl::CivilMinute time) const;
  friend bool operator==(const Hours&, const Hours&) = default;
};

// "22:00-06:00", "09:30-24:00".
absl::StatusOr<Hours> ParseHours(absl::string_view text);

// Whether one of `hours` contains the time. True if there are none.
bool AnyContains(const std::vector<Hours>& hours, absl::CivilMinute time);
// The next time after `now` at which one of `hours` begins, on the clocks of `zone`.
absl::Time NextBegin(const std::vector<Hours>& hours, absl::Time now, absl::TimeZone zone);

}  // namespace macaw::worker
