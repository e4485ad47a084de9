#include "worker/hours.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::worker {
namespace {

constexpr int kMinutesADay = 24 * 60;

// "06:30" in minutes after midnight.
std::optional<int> MinutesOf(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  for (const size_t i : {0, 1, 3, 4}) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) return std::nullopt;
  }
  const int hours = (text[0] - '0') * 10 + (text[1] - '0'),
            minutes = (text[3] - '0') * 10 + (text[4] - '0');
  const int all = hours * 60 + minutes;
  return minutes < 60 && all <= kMinutesADay ? std::optional(all) : std::nullopt;
}

}  // namespace

bool Hours::Contain(absl::CivilMinute time) const {
  const int minute = time.hour() * 60 + time.minute();
  return begin < end ? minute >= begin && minute < end : minute >= begin || minute < end;
}

absl::StatusOr<Hours> ParseHours(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<int> begin = MinutesOf(ends.first), end = MinutesOf(ends.second);
  if (!begin.has_value() || !end.has_value() || *begin == *end || *begin == kMinutesADay) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is not a time of day from one hour to another, as in "
                     "\"22:00-06:00\""));
  }
  return Hours{.begin = *begin, .end = *end};
}

bool AnyContains(const std::vector<Hours>& hours, absl::CivilMinute time) {
  return hours.empty() ||
         std::ranges::any_of(hours, [&](const Hours& one) { return one.Contain(time); });
}

absl::Time NextBegin(const std::vector<Hours>& hours, absl::Time now, absl::TimeZone zone) {
  absl::Time next = absl::InfiniteFuture();
  const absl::CivilDay today = absl::ToCivilDay(now, zone);
  for (const Hours& one : hours) {
    // A day on which the clocks change may not have that minute.
    for (const int days : {0, 1, 2}) {
      const absl::Time begins = absl::FromCivil(absl::CivilMinute(today + days) + one.begin, zone);
      if (begins > now) next = std::min(next, begins);
    }
  }
  return next;
}

}  // namespace macaw::worker
