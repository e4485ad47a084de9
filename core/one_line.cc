#include "core/one_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macaw {
namespace {

bool IsControl(unsigned char c) { return c < 0x20 || c == 0x7f; }

}  // namespace

std::string OneLine(absl::string_view text) {
  // A control character beyond ASCII is 0xc2 and then 0x80 to 0x9f.
  const auto is_high = [&](size_t i) {
    return text[i] == '\xc2' && i + 1 < text.size() &&
           (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
  };
  std::string line;
  line.reserve(text.size());
  const auto escape = [&](char c) {
    absl::StrAppend(&line, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      line += "\\n";
    } else if (text[i] == '\t') {
      line += "\\t";
    } else if (text[i] == '\r') {
      line += "\\r";
    } else if (IsControl(static_cast<unsigned char>(text[i]))) {
      escape(text[i]);
    } else if (is_high(i)) {
      escape(text[i++]);
      escape(text[i]);
    } else {
      line += text[i];
    }
  }
  return line;
}

}  // namespace macaw
