#include "data/npy.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/status.h"
#include "data/text.h"

namespace macaw::data {
namespace {

constexpr absl::string_view kNpyMagic("\x93NUMPY", 6);
constexpr size_t kMostNpyAxes = 32;

// Reads the header, a literal of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}.
class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(absl::string_view text) : text_(text) {}

  bool Take(absl::string_view word) {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    return absl::ConsumePrefix(&text_, word);
  }
  std::optional<std::string> Word() {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const size_t end = text_.find(text_.front(), 1);
    if (end == absl::string_view::npos) return std::nullopt;
    std::string word(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return word;
  }
  std::optional<bool> Truth() {
    if (Take("True")) return true;
    if (Take("False")) return false;
    return std::nullopt;
  }
  std::optional<std::vector<uint64_t>> Shape() {
    std::vector<uint64_t> shape;
    if (!Take("(")) return std::nullopt;
    while (!Take(")")) {
      text_ = absl::StripLeadingAsciiWhitespace(text_);
      size_t digits = 0;
      while (digits < text_.size() && absl::ascii_isdigit(text_[digits])) ++digits;
      uint64_t extent = 0;
      if (!absl::SimpleAtoi(text_.substr(0, digits), &extent) || shape.size() == kMostNpyAxes)
        return std::nullopt;
      shape.push_back(extent);
      text_.remove_prefix(digits);
      if (!Take(",") && !absl::StartsWith(absl::StripLeadingAsciiWhitespace(text_), ")"))
        return std::nullopt;
    }
    return shape;
  }
  bool AtList() { return absl::StartsWith(absl::StripLeadingAsciiWhitespace(text_), "["); }

 private:
  absl::string_view text_;
};

struct NpyHeader {
  std::string type;  // "<f4"
  bool structured = false, fortran = false;
  std::vector<uint64_t> shape;
};

std::optional<NpyHeader> ParseNpyHeader(absl::string_view text) {
  NpyHeaderParser parser(text);
  NpyHeader header;
  bool type = false, order = false, shape = false;
  if (!parser.Take("{")) return std::nullopt;
  while (!parser.Take("}")) {
    const std::optional<std::string> key = parser.Word();
    if (!key.has_value() || !parser.Take(":")) return std::nullopt;
    if (*key == "descr") {
      if (parser.AtList()) return NpyHeader{.structured = true};
      const auto word = parser.Word();
      if (!word.has_value()) return std::nullopt;
      header.type = *word, type = true;
    } else if (*key == "fortran_order") {
      const auto truth = parser.Truth();
      if (!truth.has_value()) return std::nullopt;
      header.fortran = *truth, order = true;
    } else if (*key == "shape") {
      auto extents = parser.Shape();
      if (!extents.has_value()) return std::nullopt;
      header.shape = *std::move(extents), shape = true;
    } else {
      return std::nullopt;
    }
    (void)parser.Take(",");
  }
  return type && order && shape ? std::optional(header) : std::nullopt;
}

// "<f4" to kind and size. False: a type that is not read.
bool ParseNpyType(absl::string_view type, StoredArray& array) {
  if (type.size() < 3 || !absl::SimpleAtoi(type.substr(2), &array.item)) return false;
  array.kind = type[1];
  const auto is = [&](std::initializer_list<uint64_t> sizes) {
    for (const uint64_t size : sizes) {
      if (array.item == size) return true;
    }
    return false;
  };
  const bool one_byte = array.item == 1 || array.kind == 'S' || array.kind == 'b';
  if (type[0] != '<' && !(type[0] == '|' && one_byte)) return false;
  switch (array.kind) {
    case 'u':
    case 'i':
      return is({1, 2, 4, 8});
    case 'f':
      return is({4, 8});
    case 'b':
      return is({1});
    case 'U':
      array.item *= 4;
      return array.item > 0 && array.item <= UINT32_MAX;
    case 'S':
      return array.item > 0 && array.item <= UINT32_MAX;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<StoredArray> ParseNpy(absl::string_view bytes, std::string name) {
  StoredArray array{.name = std::move(name)};
  const auto refuse = [&](auto&&... why) {
    return absl::InvalidArgumentError(absl::StrCat(array.name, " ", why...));
  };
  if (!absl::StartsWith(bytes, kNpyMagic) || bytes.size() < 12) return refuse("is no .npy array");
  const auto version = static_cast<uint8_t>(bytes[6]);
  if (version < 1 || version > 3) return refuse("has .npy version ", version, "; 1 to 3 are read");
  uint64_t size = 0;
  const size_t start = version == 1 ? 10 : 12;
  std::memcpy(&size, bytes.data() + 8, start - 8);
  if (size > bytes.size() - start) return refuse("is cut short");
  const std::optional<NpyHeader> header = ParseNpyHeader(bytes.substr(start, size));
  if (!header.has_value()) return refuse("has a damaged .npy header");
  if (header->structured) return refuse("has named fields: write each as an array of its own");
  if (!ParseNpyType(header->type, array)) {
    return refuse("is of type ", Quoted(header->type),
                  "; read are little-endian integers, float32, float64, truth values and texts: "
                  "convert it with astype");
  }
  if (header->fortran)
    return refuse("is in Fortran order: write it as numpy.ascontiguousarray(...)");
  array.shape = header->shape;
  array.data = bytes.substr(start + size);
  uint64_t needed = array.item;
  for (const uint64_t extent : array.shape) {
    if (__builtin_mul_overflow(needed, extent, &needed)) return refuse("has an impossible shape");
  }
  if (needed != array.data.size()) {
    return refuse("needs ", needed, " bytes for its shape, but has ", array.data.size());
  }
  return array;
}

}  // namespace macaw::data
