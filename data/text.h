#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/utf8.h"

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
  return absl::StrCat("\"", EscapeToUtf8(name), "\"");
}

inline bool IsWhole(double value) {
  return value == std::floor(value) && std::fabs(value) < 0x1.0p31;
}

// How many bytes end a line at the beginning of `text`: "\n" and "\r" (old spreadsheets) 1, "\r\n"
// 2, anything else 0.
inline size_t LineEndBytes(absl::string_view text) {
  if (text.empty() || (text[0] != '\n' && text[0] != '\r')) return 0;
  return text[0] == '\r' && text.size() > 1 && text[1] == '\n' ? 2 : 1;
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
