#include "core/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/status.h"

namespace macaw {
namespace {

constexpr size_t kNone = absl::string_view::npos;

// How many bytes the character at the beginning of `text` has; 0: it is not UTF-8.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : size;
}

// The line of a byte, from 1.
ptrdiff_t LineOf(absl::string_view text, size_t at) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
}

// Whether a byte is not the first of its character, which has at most three such bytes.
bool Continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }
constexpr size_t kMostContinued = 3;

struct ByteOrderMark {
  absl::string_view bytes, encoding;
};
// UTF-32's comes first: UTF-16's is its beginning.
constexpr std::array<ByteOrderMark, 4> kByteOrderMarks = {{{{"\xFF\xFE\0\0", 4}, "UTF-32LE"},
                                                           {{"\0\0\xFE\xFF", 4}, "UTF-32BE"},
                                                           {{"\xFF\xFE", 2}, "UTF-16LE"},
                                                           {{"\xFE\xFF", 2}, "UTF-16BE"}}};

}  // namespace

size_t FirstNotUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return kNone;
}

std::string EscapeToUtf8(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t wrong = std::min(FirstNotUtf8(text), text.size());
    absl::StrAppend(&escaped, absl::Utf8SafeCEscape(text.substr(0, wrong)));
    if (wrong < text.size()) absl::StrAppend(&escaped, absl::CHexEscape(text.substr(wrong, 1)));
    text.remove_prefix(std::min(wrong + 1, text.size()));
  }
  return escaped;
}

absl::string_view HeadOf(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  for (size_t i = 0; i < kMostContinued && bytes > 0 && Continues(text[bytes]); ++i) --bytes;
  return text.substr(0, bytes);
}

absl::string_view TailOf(absl::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  text.remove_prefix(text.size() - bytes);
  for (size_t i = 0; i < kMostContinued && !text.empty() && Continues(text[0]); ++i)
    text.remove_prefix(1);
  return text;
}

std::string HowToConvert(const std::string& file, absl::string_view encoding) {
  return absl::StrCat("convert it: iconv -f ", encoding, " -t UTF-8 ", file, " > utf8-copy");
}

absl::Status RefuseNotUtf8(absl::string_view what, absl::string_view word,
                           const std::string& file) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, " \"", EscapeToUtf8(word.substr(0, 40)),
      "\" is not UTF-8. If the file is in Latin-1 (or Windows' code page), ", HowToConvert(file)));
}

absl::string_view WithoutByteOrderMark(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  return text;
}

std::string WideEncoding(absl::string_view bytes) {
  for (const ByteOrderMark& mark : kByteOrderMarks) {
    if (absl::StartsWith(bytes, mark.bytes)) return std::string(mark.encoding);
  }
  // Without a mark: the high bytes of most characters are 0, and no low byte is.
  constexpr size_t kLook = 4096;
  const absl::string_view head = bytes.substr(0, kLook);
  std::array<size_t, 2> zeros{};
  for (size_t i = 0; i < head.size(); ++i) zeros[i % 2] += head[i] == '\0' ? 1 : 0;
  const auto wide = [&](size_t high) {
    return head.size() >= 4 && zeros[1 - high] == 0 && 10 * zeros[high] > 3 * head.size();
  };
  return wide(1) ? "UTF-16LE" : wide(0) ? "UTF-16BE" : "";
}

absl::Status CheckPlainText(absl::string_view bytes, const std::string& file) {
  if (const std::string encoding = WideEncoding(bytes); !encoding.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, " is text in ", encoding, ", and UTF-8 is read; ", HowToConvert(file, encoding)));
  }
  const size_t zero = bytes.find('\0');
  if (zero == kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file, " line ", LineOf(bytes, zero), " holds a zero byte (byte ", zero,
                   " of the file), which no text has: it is damaged, or not a text file"));
}

absl::Status CheckUtf8(absl::string_view text, const std::string& file) {
  MACAW_RETURN_IF_ERROR(CheckPlainText(text, file));
  const size_t wrong = FirstNotUtf8(text);
  if (wrong == kNone) return absl::OkStatus();
  return RefuseNotUtf8(absl::StrCat(file, " line ", LineOf(text, wrong), ":"),
                       text.substr(wrong, 1), file);
}

}  // namespace macaw
