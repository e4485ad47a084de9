#include "data/stored_array.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace macaw::data {
namespace {

template <typename T>
T Element(const StoredArray& array, uint64_t i) {
  T value;
  std::memcpy(&value, array.data.data() + i * sizeof(T), sizeof(T));
  return value;
}

void AppendUtf8(uint32_t code, std::string& out) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) return add(0xC0 | code >> 6), add(0x80 | (code & 0x3F));
  if (code < 0x10000) {
    return add(0xE0 | code >> 12), add(0x80 | (code >> 6 & 0x3F)), add(0x80 | (code & 0x3F));
  }
  add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 0x3F));
  add(0x80 | (code >> 6 & 0x3F)), add(0x80 | (code & 0x3F));
}

}  // namespace

uint64_t StoredArray::row_elements() const {
  uint64_t elements = 1;
  for (size_t axis = 1; axis < shape.size(); ++axis) elements *= shape[axis];
  return elements;
}

std::string StoredArray::TypeName() const {
  switch (kind) {
    case 'u':
      return absl::StrCat("uint", 8 * item);
    case 'i':
      return absl::StrCat("int", 8 * item);
    case 'f':
      return absl::StrCat("float", 8 * item);
    case 'b':
      return "bool";
    default:
      return "text";
  }
}

int64_t IntegerAt(const StoredArray& array, uint64_t i) {
  const bool is_signed = array.kind == 'i';
  switch (array.item) {
    case 1:
      return is_signed ? int64_t{Element<int8_t>(array, i)} : int64_t{Element<uint8_t>(array, i)};
    case 2:
      return is_signed ? int64_t{Element<int16_t>(array, i)} : int64_t{Element<uint16_t>(array, i)};
    case 4:
      return is_signed ? int64_t{Element<int32_t>(array, i)} : int64_t{Element<uint32_t>(array, i)};
    default:
      return Element<int64_t>(array, i);
  }
}

double FloatAt(const StoredArray& array, uint64_t i) {
  return array.item == 4 ? double{Element<float>(array, i)} : Element<double>(array, i);
}

std::string TextAt(const StoredArray& array, uint64_t i) {
  const bool wide = array.kind == 'u' && array.item == 8;
  if (wide) return absl::StrCat(Element<uint64_t>(array, i));
  if (array.is_integer()) return absl::StrCat(IntegerAt(array, i));
  absl::string_view bytes = array.data.substr(i * array.item, array.item);
  std::string text;
  if (array.kind == 'S') {
    text.assign(bytes.data(), bytes.size());
  } else {
    for (; !bytes.empty(); bytes.remove_prefix(4)) {
      uint32_t code;
      std::memcpy(&code, bytes.data(), 4);
      AppendUtf8(code, text);
    }
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

absl::Status RefuseArray(const StoredArray& array, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(array.name, " ", why));
}

}  // namespace macaw::data
