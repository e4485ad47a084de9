#include "cli/invite/lifetimes.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "identity/authority.h"

namespace macaw::cli {

absl::StatusOr<absl::Duration> ParseLifetime(absl::string_view option, absl::string_view text,
                                             absl::Duration otherwise) {
  if (text.empty()) return otherwise;
  // What absl::ParseDuration does not know.
  constexpr std::pair<const char*, absl::Duration> kUnits[] = {
      {"min", absl::Minutes(1)}, {"d", absl::Hours(24)}, {"", absl::Seconds(1)}};
  absl::Duration duration = absl::ZeroDuration();
  if (!absl::ParseDuration(text, &duration)) {
    for (const auto& [unit, length] : kUnits) {
      absl::string_view number = text;
      int64_t count = 0;
      if (absl::ConsumeSuffix(&number, unit) && absl::SimpleAtoi(number, &count))
        duration = count * length;
    }
  }
  if (duration >= absl::Seconds(1) && duration < identity::kAuthorityLifetime) return duration;
  return absl::InvalidArgumentError(absl::StrCat(
      option, " ", text, ": not a time, as in 90s, 30m, 12h or 30d (or 3600, in seconds)"));
}

}  // namespace macaw::cli
