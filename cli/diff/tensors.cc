#include "cli/diff/tensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/half.h"

namespace macaw::cli {
namespace {

template <typename T>
T ValueAt(std::span<const std::byte> bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// One value of a dtype, as a number.
using Read = double (*)(std::span<const std::byte>, uint64_t);

template <typename T>
double ReadAs(std::span<const std::byte> bytes, uint64_t i) {
  return static_cast<double>(ValueAt<T>(bytes, i));
}
double ReadHalf(std::span<const std::byte> bytes, uint64_t i) {
  return FromHalf(ValueAt<uint16_t>(bytes, i));
}
double ReadBrain(std::span<const std::byte> bytes, uint64_t i) {
  return std::bit_cast<float>(uint32_t{ValueAt<uint16_t>(bytes, i)} << 16);
}

struct NumberType {
  const char* dtype;
  size_t bytes;
  Read read;
  int float_bits;  // 0: whole numbers
};
constexpr NumberType kNumberTypes[] = {
    {"F64", 8, ReadAs<double>, 64}, {"F32", 4, ReadAs<float>, 32},
    {"F16", 2, ReadHalf, 16},       {"BF16", 2, ReadBrain, 15},
    {"I64", 8, ReadAs<int64_t>, 0}, {"U64", 8, ReadAs<uint64_t>, 0},
    {"I32", 4, ReadAs<int32_t>, 0}, {"U32", 4, ReadAs<uint32_t>, 0},
    {"I16", 2, ReadAs<int16_t>, 0}, {"U16", 2, ReadAs<uint16_t>, 0},
    {"I8", 1, ReadAs<int8_t>, 0},   {"U8", 1, ReadAs<uint8_t>, 0},
    {"BOOL", 1, ReadAs<uint8_t>, 0}};

const NumberType* FindType(const std::string& dtype) {
  const auto* const found = std::ranges::find_if(
      kNumberTypes, [&](const NumberType& type) { return dtype == type.dtype; });
  return found == std::end(kNumberTypes) ? nullptr : found;
}

// The floating-point numbers of a format in their order: neighbours differ by one, and both zeros
// are 0.
template <typename Bits>
int64_t Rank(Bits bits) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const auto size = static_cast<int64_t>(bits & static_cast<Bits>(~sign));
  return (bits & sign) != 0 ? -size : size;
}

// The place of `value` among the numbers of this format, in which it must be exact.
int64_t RankIn(int float_bits, double value) {
  switch (float_bits) {
    case 64:
      return Rank(std::bit_cast<uint64_t>(value));
    case 32:
      return Rank(std::bit_cast<uint32_t>(static_cast<float>(value)));
    case 16:
      return Rank(ToHalf(static_cast<float>(value)));
    default:  // BF16
      return Rank(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
  }
}

uint64_t Apart(int64_t a, int64_t b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

std::string ShapeText(const TensorRef& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]");
}

void CompareBytes(const TensorRef& a, const TensorRef& b, TensorDifference& out) {
  if (a.dtype != b.dtype) {
    out.why = absl::StrCat("its dtype is ", a.dtype, " and ", b.dtype);
  } else if (!std::ranges::equal(a.bytes, b.bytes)) {
    out.differing = out.beyond = out.values;
  }
}

void CompareValues(const TensorRef& a, const NumberType& first, const TensorRef& b,
                   const NumberType& second, double tolerance, TensorDifference& out) {
  const bool same_type = &first == &second;
  if (same_type && a.bytes.size() == b.bytes.size() &&
      (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0)) {
    if (first.float_bits > 0) out.ulps = 0;
    return;
  }
  const int bits = std::min(first.float_bits, second.float_bits);
  uint64_t ulps = 0;
  for (uint64_t i = 0; i < out.values; ++i) {
    const size_t at = i * first.bytes;
    if (same_type && std::memcmp(a.bytes.data() + at, b.bytes.data() + at, first.bytes) == 0)
      continue;
    const double x = first.read(a.bytes, i), y = second.read(b.bytes, i);
    if (!same_type && (x == y || (std::isnan(x) && std::isnan(y)))) continue;
    ++out.differing;
    if (!Agree(x, y, tolerance)) ++out.beyond;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      ++out.not_finite;
      continue;
    }
    out.largest = std::max(out.largest, std::fabs(x - y));
    if (bits > 0) ulps = std::max(ulps, Apart(RankIn(bits, x), RankIn(bits, y)));
  }
  if (bits > 0) out.ulps = ulps;
}

}  // namespace

bool Agree(double a, double b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return std::fabs(a - b) <= tolerance * std::max({1.0, std::fabs(a), std::fabs(b)});
}

std::vector<TensorDifference> CompareTensors(const Tensors& a, const Tensors& b, double tolerance) {
  std::vector<TensorDifference> all;
  for (const auto& [name, tensor] : a) {
    TensorDifference& out = all.emplace_back();
    out.name = name;
    out.dtype = tensor.dtype;
    out.values = tensor.elements();
    const auto found = b.find(name);
    if (found == b.end()) {
      out.why = "only the first has it";
      continue;
    }
    const TensorRef& other = found->second;
    if (tensor.shape != other.shape) {
      out.why = absl::StrCat("its shape is ", ShapeText(tensor), " and ", ShapeText(other));
      continue;
    }
    const NumberType* const first = FindType(tensor.dtype);
    const NumberType* const second = FindType(other.dtype);
    if (first == nullptr || second == nullptr) {
      CompareBytes(tensor, other, out);
    } else {
      CompareValues(tensor, *first, other, *second, tolerance, out);
    }
  }
  for (const auto& [name, tensor] : b) {
    if (a.contains(name)) continue;
    TensorDifference& out = all.emplace_back();
    out.name = name;
    out.dtype = tensor.dtype;
    out.values = tensor.elements();
    out.why = "only the second has it";
  }
  std::ranges::sort(all, {}, &TensorDifference::name);
  return all;
}

}  // namespace macaw::cli
