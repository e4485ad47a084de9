#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

// Parses the whole of `text` as a number; blanks around it and a leading plus are allowed. Nothing
// when it is not one. "nan" and "inf" are accepted; the caller reports them with their place.
inline std::optional<double> ParseNumber(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A name that a file gives, for a message of one line.
inline std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(name), "\"");
}

inline bool IsWhole(double value) {
  return value == std::floor(value) && std::fabs(value) < 0x1.0p31;
}

// Calls f(line number from 1, line without its end) for each line, until f returns an error.
template <typename F>
auto ForEachLine(absl::string_view text, F&& f) -> decltype(f(0, text)) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    absl::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (auto status = f(number, line); !status.ok()) return status;
    text = end == absl::string_view::npos ? absl::string_view() : text.substr(end + 1);
  }
  return {};
}

}  // namespace macaw::data
