#include "core/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/block_format.h"
#include "core/block_kernels.h"

namespace macaw {

using block_format::BytesOfBits;
using block_format::kNoZeroBit;
using block_format::kPlaceBits;
using block_format::kPlacesShift;
using block_format::Level;
using block_format::LevelCode;

namespace {

size_t VarintBytes(uint64_t value) {
  return value == 0 ? 1 : (static_cast<size_t>(std::bit_width(value)) + 6) / 7;
}

// The whole k for which `value` is a level, if there is one. Then value/step is nearer to it than a
// thousandth.
std::optional<int> LevelOf(float value, float step) {
  const double ratio = double{value} / step;
  if (!(std::fabs(ratio) <= kMostLevels + 0.5)) return std::nullopt;
  const int k = static_cast<int>(ratio < 0 ? ratio - 0.5 : ratio + 0.5);
  if (Level(step, k) != value) return std::nullopt;
  return k;
}

struct Levels {
  float step = 0;
  int most = 0;
  float inverse = 0;  // 1/step; infinite for the least floats
};

// Whether all values are levels; none is beyond the last one.
bool AreLevels(const BlockKernels& kernels, std::span<const float> values, const Levels& levels) {
  if (std::isfinite(levels.inverse))
    return kernels.are_levels(values.data(), values.size(), levels.step, levels.inverse);
  return std::ranges::all_of(values, [&](float v) { return LevelOf(v, levels.step).has_value(); });
}

// The step with the least largest level of which all values are whole multiples, if there is one
// with levels up to `most`. Not for −0.
std::optional<Levels> FindLevels(const BlockKernels& kernels, std::span<const float> values,
                                 const BlockScan& scan, int most) {
  const auto smallest = std::bit_cast<float>(scan.smallest);
  const auto largest = std::bit_cast<float>(scan.largest);
  if (!(largest <= std::numeric_limits<float>::max())) return std::nullopt;
  const double ratio = double{largest} / smallest;
  if (!(ratio <= most + 0.5)) return std::nullopt;
  const double part = double{smallest} / largest;
  for (int k = std::max(1, static_cast<int>(ratio)); k <= most; ++k) {
    // The smallest value is a whole multiple, too, but for both roundings.
    const double level = part * k;
    if (std::fabs(level - static_cast<int>(level + 0.5)) > 1e-3) continue;
    const auto middle = static_cast<float>(double{largest} / k);
    const auto bits = std::bit_cast<uint32_t>(middle);
    // Rounding to float may have moved the largest value away from a multiple of its step.
    for (const uint32_t near : {bits, bits - 1, bits + 1}) {
      const auto step = std::bit_cast<float>(near);
      if (!(step > 0) || Level(step, k) != largest || !LevelOf(smallest, step)) continue;
      const Levels levels = {.step = step, .most = k, .inverse = 1 / step};
      if (AreLevels(kernels, values, levels)) return levels;
    }
  }
  return std::nullopt;
}

// The places of the values that are not zero.
void FindPlaces(std::span<const float> block, std::array<uint16_t, kBlock>& places) {
  constexpr size_t kStride = 8;
  size_t count = 0;
  for (size_t begin = 0; begin < block.size(); begin += kStride) {
    const size_t end = std::min(begin + kStride, block.size());
    uint32_t any = 0;
    for (size_t i = begin; i < end; ++i) any |= std::bit_cast<uint32_t>(block[i]);
    if (any == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      places[count] = static_cast<uint16_t>(i);  // of a zero: the next one overwrites it
      count += std::bit_cast<uint32_t>(block[i]) != 0 ? 1 : 0;
    }
  }
}

// Codes of `width` bits, 8 at most, side by side in as many bytes as they need, and up to eight
// bytes more. Behind the codes up to seven bytes are read.
void Pack(const uint8_t* codes, size_t count, unsigned width, uint8_t* out) {
  const unsigned by = 8 - width;
  for (size_t i = 0; i < count; i += 8, out += width) {
    uint64_t word;
    std::memcpy(&word, codes + i, sizeof(word));
    word = (word & 0x00ff00ff00ff00ff) | ((word & 0xff00ff00ff00ff00) >> by);
    word = (word & 0x0000ffff0000ffff) | ((word & 0xffff0000ffff0000) >> 2 * by);
    word = (word & 0x00000000ffffffff) | ((word & 0xffffffff00000000) >> 4 * by);
    std::memcpy(out, &word, sizeof(word));
  }
}

}  // namespace

void ForEachBlock(const ParameterLayout& layout,
                  absl::FunctionRef<void(uint64_t offset, size_t count)> use) {
  for (const LayoutEntry& entry : layout.entries()) {
    for (uint64_t at = 0; at < entry.size; at += kBlock)
      use(entry.offset + at, std::min<uint64_t>(kBlock, entry.size - at));
  }
}

std::vector<BlockPiece> BlockPiecesOf(const ParameterLayout& layout) {
  std::vector<BlockPiece> pieces;
  uint64_t room = 0;  // blocks that the last piece still takes
  for (size_t entry = 0; entry < layout.entries().size(); ++entry) {
    const uint64_t size = layout.entries()[entry].size;
    for (uint64_t at = 0; at < size;) {
      if (room == 0) {
        pieces.push_back({entry, at});
        room = kBlocksOfPiece;
      }
      const uint64_t some = std::min(room, (size - at - 1) / kBlock + 1);
      room -= some;
      at += some * kBlock;
    }
  }
  return pieces;
}

void ForEachBlockOf(const ParameterLayout& layout, const BlockPiece& piece,
                    absl::FunctionRef<void(uint64_t offset, size_t count)> use) {
  const std::vector<LayoutEntry>& entries = layout.entries();
  uint64_t at = piece.at;
  size_t room = kBlocksOfPiece;
  for (size_t entry = piece.entry; entry < entries.size() && room > 0; ++entry, at = 0) {
    const LayoutEntry& tensor = entries[entry];
    for (; at < tensor.size && room > 0; at += kBlock, --room)
      use(tensor.offset + at, std::min<uint64_t>(kBlock, tensor.size - at));
  }
}

// Collects a block's values of some bits each, and appends them.
class BlockWriter::Bits {
 public:
  explicit Bits(BlockWriter& to) : to_(to) {}
  void Put(uint64_t value, unsigned width) {
    if (width > 32) {
      Put(value & 0xffffffffu, 32);
      value >>= 32;
      width -= 32;
    }
    held_ |= value << count_;
    count_ += width;
    std::memcpy(&bytes_[at_], &held_, sizeof(held_));
    at_ += count_ / 8;
    held_ >>= count_ & ~7u;  // fewer than 40 bits were there
    count_ %= 8;
  }
  void Close() {
    to_.Append(std::as_bytes(std::span(bytes_).first(at_ + (count_ > 0 ? 1 : 0))));
    at_ = 0;
    held_ = 0;
    count_ = 0;
  }

 private:
  BlockWriter& to_;
  std::array<uint8_t, kBlock * sizeof(int64_t) + sizeof(uint64_t)> bytes_;
  size_t at_ = 0;
  uint64_t held_ = 0;  // fewer than 8 bits between two calls
  unsigned count_ = 0;
};

void BlockWriter::Append(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (out_ != nullptr) out_->insert(out_->end(), bytes.begin(), bytes.end());
}

void BlockWriter::Byte(unsigned value) {
  ++bytes_;
  if (out_ != nullptr) out_->push_back(static_cast<std::byte>(value));
}

void BlockWriter::Varint(uint64_t value) {
  for (; value >= 128; value >>= 7) Byte(static_cast<unsigned>(value & 127) | 128);
  Byte(static_cast<unsigned>(value));
}

uint64_t BlockWriter::SizeOf(const Shape& shape, size_t count) {
  uint64_t bytes = 1 + BytesOfBits(uint64_t{shape.values} * shape.width);
  if (shape.kind == Kind::kIntegers) bytes += 2;
  if (shape.kind == Kind::kLevels) bytes += sizeof(float) + 1;
  if (shape.places == Places::kBitmap) bytes += VarintBytes(shape.values) + BytesOfBits(count);
  if (shape.places == Places::kList)
    bytes += VarintBytes(shape.values) + BytesOfBits(uint64_t{shape.values} * kPlaceBits);
  return bytes;
}

// `all`: the shape if every place has a value; `some`: if only non-zeros have.
BlockWriter::Shape BlockWriter::Least(Shape all, Shape some, size_t count) {
  all.values = count;
  all.bytes = SizeOf(all, count);
  Shape least = all;
  for (const Places places : {Places::kBitmap, Places::kList}) {
    some.places = places;
    some.bytes = SizeOf(some, count);
    if (some.bytes < least.bytes) least = some;
  }
  return least;
}

void BlockWriter::Zeros() { ++zeros_; }

void BlockWriter::Join(const BlockWriter& next) {
  std::span<const std::byte> bytes(*next.out_);
  if (!bytes.empty() && bytes[0] == std::byte{0}) {  // they begin with blocks of zeros
    uint64_t less = 0;                               // their number less one
    size_t at = 1;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<uint64_t>(bytes[at++]);
      less |= (byte & 127) << shift;
      if (byte < 128) break;
    }
    zeros_ += less + 1;
    bytes = bytes.subspan(at);
  }
  if (!bytes.empty()) {
    End();
    Append(bytes);
  }
  zeros_ += next.zeros_;
}

void BlockWriter::End() {
  if (zeros_ == 0) return;
  Byte(0);
  Varint(std::exchange(zeros_, 0) - 1);
}

void BlockWriter::Head(const Shape& shape, std::span<const uint16_t> places, size_t count) {
  End();
  Byte(static_cast<unsigned>(shape.kind) | static_cast<unsigned>(shape.places) << kPlacesShift |
       (shape.no_zero ? kNoZeroBit : 0));
  Bits bits(*this);
  if (shape.places != Places::kAll) Varint(shape.values);
  if (shape.places == Places::kList) {
    for (const uint16_t place : places) bits.Put(place, kPlaceBits);
  } else if (shape.places == Places::kBitmap) {
    std::array<uint8_t, kBlock + sizeof(uint64_t)> set = {}, packed;
    for (const uint16_t place : places) set[place] = 1;
    Pack(set.data(), count, 1, packed.data());
    Append(std::as_bytes(std::span(packed).first(BytesOfBits(count))));
  }
  bits.Close();
  if (shape.kind == Kind::kIntegers) {
    Byte(shape.width);
    Byte(shape.shift);
  } else if (shape.kind == Kind::kLevels) {
    bits.Put(std::bit_cast<uint32_t>(shape.step), 32);
    bits.Close();
    Byte(shape.width);
  }
}

void BlockWriter::Integers(std::span<const int64_t> block) {
  const BlockKernels& kernels = BestBlockKernels();
  const IntegerScan scan = kernels.scan_integers(block.data(), block.size());
  if (scan.nonzeros == 0) return Zeros();
  Shape shape{.kind = Kind::kIntegers, .values = scan.nonzeros};
  shape.shift = static_cast<unsigned>(std::countr_zero(scan.seen));
  shape.width = static_cast<unsigned>(std::bit_width(scan.sizes >> shape.shift)) + 1;
  shape = Least(shape, shape, block.size());
  if (out_ == nullptr) {
    End();
    bytes_ += shape.bytes;
    return;
  }
  std::array<uint16_t, kBlock> places;
  std::array<int64_t, kBlock> some;
  const int64_t* integers = block.data();
  if (shape.places != Places::kAll) {
    size_t count = 0;
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] == 0) continue;
      places[count] = static_cast<uint16_t>(i);
      some[count++] = block[i];
    }
    integers = some.data();
  }
  Head(shape, std::span(places).first(scan.nonzeros), block.size());
  std::array<std::byte, kBlock * sizeof(int64_t) + kBytesBeyond> packed;
  kernels.pack_integers(integers, shape.values, shape.width, shape.shift, packed.data());
  Append(std::span(packed).first(BytesOfBits(uint64_t{shape.values} * shape.width)));
}

void BlockWriter::CountFloats(size_t nonzeros, size_t count) {
  if (nonzeros == 0) return Zeros();
  End();
  const Shape shape{.values = nonzeros};
  bytes_ += Least(shape, shape, count).bytes;
}

void BlockWriter::Values(std::span<const float> block, ValueForms forms) {
  const BlockKernels& kernels = BestBlockKernels();
  const BlockScan scan = kernels.scan(block.data(), block.size());
  if (scan.nonzeros == 0) return Zeros();
  Shape shape{.values = scan.nonzeros};
  if (forms.short_floats && scan.are_brains) shape.kind = Kind::kBrains;
  if (forms.short_floats && kernels.are_halves(block.data(), block.size()))
    shape.kind = Kind::kHalves;
  if (shape.kind != Kind::kFloats) shape.width = 16;
  Shape least = Least(shape, shape, block.size());
  std::optional<Levels> levels;
  if (forms.levels > 0 && !scan.has_minus_zero)
    levels =
        FindLevels(kernels, block, scan, static_cast<int>(std::min(forms.levels, kMostLevels)));
  if (levels.has_value()) {
    const auto width_of = [&](bool no_zero) {
      return static_cast<unsigned>(std::bit_width(LevelCode(-levels->most, no_zero)));
    };
    Shape some{
        .kind = Kind::kLevels, .values = scan.nonzeros, .step = levels->step, .no_zero = true};
    some.width = width_of(true);
    Shape all = some;
    all.no_zero = scan.nonzeros == block.size();
    all.width = width_of(all.no_zero);
    const Shape as_levels = Least(all, some, block.size());
    if (as_levels.bytes < least.bytes) least = as_levels;
  }
  if (out_ == nullptr) {
    End();
    bytes_ += least.bytes;
    return;
  }
  std::array<float, kBlock> nonzeros;
  std::array<uint16_t, kBlock> places;
  std::span<const float> values = block;
  if (least.places != Places::kAll) {
    FindPlaces(block, places);
    for (size_t i = 0; i < least.values; ++i) nonzeros[i] = block[places[i]];
    values = std::span(nonzeros).first(least.values);
  }
  Head(least, std::span(places).first(scan.nonzeros), block.size());
  if (least.kind == Kind::kLevels) return PutLevels(least, levels->inverse, values);
  if (least.kind == Kind::kFloats) return Append(std::as_bytes(values));
  std::array<uint16_t, kBlock> halves;
  if (least.kind == Kind::kHalves) {
    kernels.half_codes(values.data(), values.size(), halves.data());
  } else {
    for (size_t i = 0; i < values.size(); ++i)
      halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
  }
  Append(std::as_bytes(std::span(halves).first(values.size())));
}

void BlockWriter::PutLevels(const Shape& shape, float inverse, std::span<const float> values) {
  if (shape.width > 8 || !std::isfinite(inverse)) {
    Bits bits(*this);
    for (const float value : values)
      bits.Put(LevelCode(*LevelOf(value, shape.step), shape.no_zero), shape.width);
    return bits.Close();
  }
  std::array<uint8_t, kBlock + sizeof(uint64_t)> codes, packed;
  BestBlockKernels().level_codes(values.data(), values.size(), inverse, shape.no_zero,
                                 codes.data());
  std::memset(codes.data() + values.size(), 0, sizeof(uint64_t));
  Pack(codes.data(), values.size(), shape.width, packed.data());
  Append(
      std::as_bytes(std::span(packed).first(BytesOfBits(uint64_t{values.size()} * shape.width))));
}

}  // namespace macaw
