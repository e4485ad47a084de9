#include "core/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/half.h"

namespace macaw {
namespace {

constexpr unsigned kPlaceBits = 9;      // 2^9 = kBlock
constexpr unsigned kMostLevelBits = 9;  // of 2·kMostLevels + 1 numbers
constexpr unsigned kKindMask = 7, kPlacesShift = 3, kNoZeroBit = 1u << 5;
constexpr unsigned kKnownBits = kKindMask | (3u << kPlacesShift) | kNoZeroBit;

uint64_t Zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
int64_t Unzigzag(uint64_t code) {
  return static_cast<int64_t>(code >> 1) ^ -static_cast<int64_t>(code & 1);
}

size_t VarintBytes(uint64_t value) {
  return value == 0 ? 1 : (static_cast<size_t>(std::bit_width(value)) + 6) / 7;
}

uint64_t BytesOfBits(uint64_t bits) { return (bits + 7) / 8; }

// The value of level k.
float Level(float step, int k) { return static_cast<float>(double{step} * k); }

// The whole k for which `value` is a level, if there is one.
std::optional<int> LevelOf(float value, float step, int most) {
  const double ratio = double{value} / step;
  if (!(std::fabs(ratio) <= most + 0.5)) return std::nullopt;
  const int k = static_cast<int>(std::lround(ratio));
  if (std::abs(k) > most || Level(step, k) != value) return std::nullopt;
  return k;
}

// Levels as numbers from 0 on.
uint64_t LevelCode(int k, bool no_zero) {
  return k > 0 ? 2 * static_cast<uint64_t>(k) - (no_zero ? 2 : 1)
               : 2 * static_cast<uint64_t>(-k) - (no_zero ? 1 : 0);
}
int LevelFrom(uint64_t code, bool no_zero) {
  const uint64_t from_one = code + (no_zero ? 2 : 1);  // 2|k| + (k < 0)
  const int size = static_cast<int>(from_one / 2);
  return from_one % 2 == 0 ? size : -size;
}

struct Levels {
  float step = 0;
  int most = 0;
};

// The step with the least largest level of which all non-zero values are whole multiples, if there
// is one with levels up to `most`.
std::optional<Levels> FindLevels(std::span<const float> values, int most) {
  float smallest = 0, largest = 0;
  for (const float value : values) {
    const float size = std::fabs(value);
    if (size == 0) continue;
    largest = std::max(largest, size);
    if (smallest == 0 || size < smallest) smallest = size;
  }
  if (!(largest <= std::numeric_limits<float>::max())) return std::nullopt;
  const double ratio = double{largest} / smallest;
  if (!(ratio <= most + 0.5)) return std::nullopt;
  for (int k = std::max(1, static_cast<int>(ratio)); k <= most; ++k) {
    const auto middle = static_cast<float>(double{largest} / k);
    // Rounding to float may have moved the largest value away from a multiple of its step.
    for (const float step :
         {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, largest)}) {
      if (!(step > 0) || Level(step, k) != largest || !LevelOf(smallest, step, k)) continue;
      if (std::ranges::all_of(values, [&](float v) { return v == 0 || LevelOf(v, step, k); }))
        return Levels{step, k};
    }
  }
  return std::nullopt;
}

}  // namespace

void ForEachBlock(const ParameterLayout& layout,
                  absl::FunctionRef<void(uint64_t offset, size_t count)> use) {
  for (const LayoutEntry& entry : layout.entries()) {
    for (uint64_t at = 0; at < entry.size; at += kBlock)
      use(entry.offset + at, std::min<uint64_t>(kBlock, entry.size - at));
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
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      const bool set = next < places.size() && places[next] == i;
      bits.Put(set ? 1 : 0, 1);
      next += set ? 1 : 0;
    }
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
  std::array<uint16_t, kBlock> places;
  size_t nonzeros = 0;
  uint64_t seen = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    if (block[i] == 0) continue;
    places[nonzeros++] = static_cast<uint16_t>(i);
    seen |= static_cast<uint64_t>(block[i]);
  }
  if (nonzeros == 0) return Zeros();
  Shape shape{.kind = Kind::kIntegers, .values = nonzeros};
  shape.shift = static_cast<unsigned>(std::countr_zero(seen));
  uint64_t codes = 0;
  for (const int64_t integer : block) codes |= Zigzag(integer >> shape.shift);
  shape.width = static_cast<unsigned>(std::bit_width(codes));
  shape = Least(shape, shape, block.size());
  if (out_ == nullptr) {
    End();
    bytes_ += shape.bytes;
    return;
  }
  const bool all = shape.places == Places::kAll;
  Head(shape, std::span(places).first(nonzeros), block.size());
  Bits bits(*this);
  for (size_t i = 0; i < shape.values; ++i)
    bits.Put(Zigzag(block[all ? i : places[i]] >> shape.shift), shape.width);
  bits.Close();
}

void BlockWriter::CountFloats(size_t nonzeros, size_t count) {
  if (nonzeros == 0) return Zeros();
  End();
  const Shape shape{.values = nonzeros};
  bytes_ += Least(shape, shape, count).bytes;
}

void BlockWriter::Values(std::span<const float> block, ValueForms forms) {
  std::array<uint16_t, kBlock> places;
  size_t nonzeros = 0;  // −0 counts
  bool halves = forms.short_floats, brains = forms.short_floats, levels_fit = forms.levels > 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(block[i]);
    if (bits == 0) continue;
    places[nonzeros++] = static_cast<uint16_t>(i);
    brains = brains && (bits & 0xffff) == 0;
    halves = halves && FromHalf(ToHalf(block[i])) == block[i];
    levels_fit = levels_fit && block[i] != 0;
  }
  if (nonzeros == 0) return Zeros();
  Shape shape{.values = nonzeros};
  if (brains) shape = {.kind = Kind::kBrains, .values = nonzeros, .width = 16};
  if (halves) shape = {.kind = Kind::kHalves, .values = nonzeros, .width = 16};
  Shape least = Least(shape, shape, block.size());
  if (levels_fit) {
    const int most = static_cast<int>(std::min(forms.levels, kMostLevels));
    if (const std::optional<Levels> levels = FindLevels(block, most)) {
      const auto width_of = [&](bool no_zero) {
        return static_cast<unsigned>(std::bit_width(LevelCode(-levels->most, no_zero)));
      };
      Shape some{.kind = Kind::kLevels, .values = nonzeros, .step = levels->step, .no_zero = true};
      some.width = width_of(true);
      Shape all = some;
      all.no_zero = nonzeros == block.size();
      all.width = width_of(all.no_zero);
      const Shape as_levels = Least(all, some, block.size());
      if (as_levels.bytes < least.bytes) least = as_levels;
    }
  }
  if (out_ == nullptr) {
    End();
    bytes_ += least.bytes;
    return;
  }
  Head(least, std::span(places).first(nonzeros), block.size());
  if (least.kind == Kind::kFloats && least.places == Places::kAll)
    return Append(std::as_bytes(block));
  Bits bits(*this);
  for (size_t i = 0; i < least.values; ++i) {
    const float value = block[least.places == Places::kAll ? i : places[i]];
    uint64_t code = std::bit_cast<uint32_t>(value);
    if (least.kind == Kind::kHalves) code = ToHalf(value);
    if (least.kind == Kind::kBrains) code >>= 16;
    if (least.kind == Kind::kLevels)
      code = LevelCode(*LevelOf(value, least.step, static_cast<int>(kMostLevels)), least.no_zero);
    bits.Put(code, least.width);
  }
  bits.Close();
}

// ---- Reading

struct BlockReader::Block {
  bool zeros = false;
  BlockWriter::Kind kind = BlockWriter::Kind::kFloats;
  bool no_zero = false;
  bool all = true;
  size_t values = 0;
  std::array<uint16_t, kBlock> places;  // unless `all`
};

namespace {

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a compact block ", what));
}

}  // namespace

std::span<const std::byte> BlockReader::Raw(size_t count) {
  if (count > left()) return {};
  at_ += count;
  return bytes_.subspan(at_ - count, count);
}

absl::Status BlockReader::End() const {
  return zeros_ == 0 ? absl::OkStatus() : Damaged("of zeros is one too many");
}

bool BlockReader::HasIntegers() const {
  if (zeros_ > 0 || left() == 0) return false;
  return (static_cast<unsigned>(bytes_[at_]) & kKindMask) ==
         static_cast<unsigned>(BlockWriter::Kind::kIntegers);
}

bool BlockReader::Varint(uint64_t most, uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 63; shift += 7) {
    if (left() == 0) return false;
    const auto byte = static_cast<uint64_t>(bytes_[at_++]);
    value |= (byte & 127) << shift;
    if (byte < 128) return value <= most;
  }
  return false;
}

bool BlockReader::Bits(size_t values, unsigned width,
                       absl::FunctionRef<void(size_t, uint64_t)> use) {
  const std::span<const std::byte> from = Raw(BytesOfBits(uint64_t{values} * width));
  if (from.empty() && values > 0 && width > 0) return false;
  uint64_t held = 0;
  unsigned count = 0;
  size_t next = 0;
  const auto take = [&](unsigned bits) {  // at most 32
    for (; count < bits; count += 8) held |= static_cast<uint64_t>(from[next++]) << count;
    const uint64_t value = held & ((uint64_t{1} << bits) - 1);
    held >>= bits;
    count -= bits;
    return value;
  };
  for (size_t i = 0; i < values; ++i) {
    const uint64_t low = take(std::min(width, 32u));
    use(i, width > 32 ? low | take(width - 32) << 32 : low);
  }
  return true;
}

absl::Status BlockReader::Open(size_t count, Block& block) {
  if (zeros_ > 0) {
    --zeros_;
    block.zeros = true;
    return absl::OkStatus();
  }
  if (left() == 0) return Damaged("is missing");
  const auto tag = static_cast<unsigned>(bytes_[at_++]);
  if (tag == 0) {
    if (!Varint(uint64_t{1} << 40, zeros_)) return Damaged("of zeros has no count");
    block.zeros = true;
    return absl::OkStatus();
  }
  const unsigned kind = tag & kKindMask, places = (tag >> kPlacesShift) & 3;
  if ((tag & ~kKnownBits) != 0 || kind == 0 ||
      kind > static_cast<unsigned>(BlockWriter::Kind::kLevels) ||
      places > static_cast<unsigned>(BlockWriter::Places::kList))
    return Damaged(absl::StrCat("has the unknown tag ", tag));
  block.kind = static_cast<BlockWriter::Kind>(kind);
  block.no_zero = (tag & kNoZeroBit) != 0;
  block.all = places == static_cast<unsigned>(BlockWriter::Places::kAll);
  block.values = count;
  if (block.all) return absl::OkStatus();
  uint64_t values = 0;
  if (!Varint(count, values) || values == 0) return Damaged("has no count of values");
  block.values = values;
  size_t found = 0;
  bool good = true;
  if (places == static_cast<unsigned>(BlockWriter::Places::kList)) {
    good = Bits(values, kPlaceBits, [&](size_t i, uint64_t place) {
      if (place >= count || (i > 0 && place <= block.places[i - 1])) place = kBlock;
      block.places[i] = static_cast<uint16_t>(place);
      found += place < kBlock ? 1 : 0;
    });
  } else {
    good = Bits(count, 1, [&](size_t i, uint64_t set) {
      if (set != 0 && found < values) block.places[found] = static_cast<uint16_t>(i);
      found += set;
    });
  }
  if (!good || found != values) return Damaged("has places that do not fit");
  return absl::OkStatus();
}

absl::Status BlockReader::Integers(std::span<int64_t> block) {
  Block read;
  if (absl::Status status = Open(block.size(), read); !status.ok()) return status;
  if (read.zeros || !read.all) std::ranges::fill(block, 0);
  if (read.zeros) return absl::OkStatus();
  if (read.kind != BlockWriter::Kind::kIntegers) return Damaged("holds no integers");
  const std::span<const std::byte> head = Raw(2);
  if (head.empty()) return Damaged("ends early");
  const auto width = static_cast<unsigned>(head[0]), shift = static_cast<unsigned>(head[1]);
  if (width == 0 || width > 64 || shift > 63) return Damaged("has integers of impossible width");
  const bool whole = Bits(read.values, width, [&](size_t i, uint64_t code) {
    const auto bits = static_cast<uint64_t>(Unzigzag(code)) << shift;
    block[read.all ? i : read.places[i]] = static_cast<int64_t>(bits);
  });
  return whole ? absl::OkStatus() : Damaged("ends early");
}

absl::Status BlockReader::Values(std::span<float> block) {
  Block read;
  if (absl::Status status = Open(block.size(), read); !status.ok()) return status;
  if (read.zeros || !read.all) std::ranges::fill(block, 0.0f);
  if (read.zeros) return absl::OkStatus();
  unsigned width = 16;
  float step = 0;
  using Kind = BlockWriter::Kind;
  if (read.kind == Kind::kIntegers) return Damaged("holds integers instead of values");
  if (read.kind == Kind::kFloats) width = 32;
  if (read.kind == Kind::kLevels) {
    const std::span<const std::byte> head = Raw(sizeof(float) + 1);
    if (head.empty()) return Damaged("ends early");
    std::memcpy(&step, head.data(), sizeof(step));
    width = static_cast<unsigned>(head[sizeof(float)]);
    if (width > kMostLevelBits || !std::isfinite(step)) return Damaged("has impossible levels");
  }
  if (read.kind == Kind::kFloats && read.all) {
    const std::span<const std::byte> values = Raw(block.size_bytes());
    if (values.empty()) return Damaged("ends early");
    std::memcpy(block.data(), values.data(), values.size());
    return absl::OkStatus();
  }
  const bool whole = Bits(read.values, width, [&](size_t i, uint64_t code) {
    float value = 0;
    switch (read.kind) {
      case Kind::kHalves:
        value = FromHalf(static_cast<uint16_t>(code));
        break;
      case Kind::kBrains:
        value = std::bit_cast<float>(static_cast<uint32_t>(code << 16));
        break;
      case Kind::kLevels:
        value = Level(step, LevelFrom(code, read.no_zero));
        break;
      default:
        value = std::bit_cast<float>(static_cast<uint32_t>(code));
    }
    block[read.all ? i : read.places[i]] = value;
  });
  return whole ? absl::OkStatus() : Damaged("ends early");
}

}  // namespace macaw
