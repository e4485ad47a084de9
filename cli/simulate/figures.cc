#include "cli/simulate/figures.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macaw::cli {
namespace {

// Two digits, or all of those before the point: "%.2g" has an exponent from 99.5 on.
std::string TwoDigits(double number) {
  return number < 99.5 ? absl::StrFormat("%.2g", number) : CountText(number);
}

}  // namespace

std::string CountText(double number) {
  std::string text = absl::StrFormat("%.0f", number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string SizeText(double bytes) {
  if (bytes < 999.5) return absl::StrFormat("%.0f bytes", bytes);
  for (const char* unit : {"kB", "MB", "GB", "TB"}) {
    bytes /= 1000;
    if (bytes < 999.5) return absl::StrFormat("%.3g %s", bytes, unit);
  }
  return absl::StrCat(CountText(bytes / 1000), " PB");
}

std::string DurationText(double seconds) {
  if (seconds < 0.1) return absl::StrCat(TwoDigits(seconds * 1e3), " ms");
  if (seconds < 120) return absl::StrCat(TwoDigits(seconds), " s");
  if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
  if (seconds < 48 * 3600) return absl::StrFormat("%.3g h", seconds / 3600);
  return absl::StrCat(CountText(seconds / 86400), " days");
}

}  // namespace macaw::cli
