#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace macaw {

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

// How many bytes end a line at the beginning of `text`: "\n" and "\r" (old spreadsheets) 1, "\r\n"
// 2, anything else 0.
inline size_t LineEndBytes(absl::string_view text) {
  if (text.empty() || (text[0] != '\n' && text[0] != '\r')) return 0;
  return text[0] == '\r' && text.size() > 1 && text[1] == '\n' ? 2 : 1;
}

}  // namespace macaw
