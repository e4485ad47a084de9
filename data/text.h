#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/text.h"
#include "core/utf8.h"

namespace macaw::data {

// A name that a file gives, for a message of one line.
inline std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", EscapeToUtf8(name), "\"");
}

// The error of input that cannot be taken.
template <typename... Words>
absl::Status Refuse(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

inline bool IsWhole(double value) {
  return value == std::floor(value) && std::fabs(value) < 0x1.0p31;
}

// A whole number that is written as one: no "1.0".
inline bool IsWholeText(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty() && text.front() == '-') text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, absl::ascii_isdigit);
}

// Whether a label is a whole number. Beyond 2^53 every float64 is one, so that there its text
// says it.
inline bool IsWholeLabel(double value, absl::string_view text) {
  return value == std::floor(value) && (std::fabs(value) < 0x1.0p53 || IsWholeText(text));
}

// Calls f(line number from 1, line without its end) for each line, until f returns an error. A file
// may mix the three ends of lines; the last line need not have one.
template <typename F>
auto ForEachLine(absl::string_view text, F&& f) -> decltype(f(0, text)) {
  size_t newline = text.find('\n');
  for (size_t number = 1, at = 0; at < text.size(); ++number) {
    if (newline < at) newline = text.find('\n', at);
    const absl::string_view to_newline = text.substr(at, newline - at);
    const absl::string_view line = to_newline.substr(0, to_newline.find('\r'));
    if (auto status = f(static_cast<int64_t>(number), line); !status.ok()) return status;
    at += line.size();
    at += LineEndBytes(text.substr(at));
  }
  return {};
}

}  // namespace macaw::data
