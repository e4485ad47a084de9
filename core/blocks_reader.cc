#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/block_format.h"
#include "core/block_kernels.h"
#include "core/blocks.h"

namespace macaw {

using block_format::BytesOfBits;
using block_format::kKindMask;
using block_format::kKnownBits;
using block_format::kMostLevelBits;
using block_format::kNoZeroBit;
using block_format::kPlaceBits;
using block_format::kPlacesShift;
using block_format::Level;
using block_format::LevelFrom;

struct BlockReader::Block {
  bool zeros = false;
  BlockWriter::Kind kind = BlockWriter::Kind::kFloats;
  bool no_zero = false;
  bool all = true;
  size_t values = 0;
};

// The next bits, kBlock numbers of 64 at most, with kBytesBeyond bytes behind them that may be
// read. Null: so many are not there.
class BlockReader::Padded {
 public:
  Padded(BlockReader& reader, uint64_t bits) {
    const size_t count = BytesOfBits(bits);
    if (count > reader.left()) return;
    data_ = reader.bytes_.data() + reader.at_;
    reader.at_ += count;
    if (reader.left() >= kBytesBeyond) return;
    std::memcpy(copy_.data(), data_, count);
    std::memset(copy_.data() + count, 0, kBytesBeyond);
    data_ = copy_.data();
  }
  Padded(const Padded&) = delete;
  const std::byte* data() const { return data_; }

 private:
  const std::byte* data_ = nullptr;
  std::array<std::byte, kBlock * sizeof(int64_t) + kBytesBeyond> copy_;
};

namespace {

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a compact block ", what));
}

// Whether each is larger than the one before it, and the last one below `end`.
bool Ascend(std::span<const uint16_t> places, size_t end) {
  unsigned bad = places.back() >= end ? 1 : 0;
  for (size_t i = 1; i < places.size(); ++i) bad |= places[i] <= places[i - 1] ? 1 : 0;
  return bad == 0;
}

// The places of the ones among `count` bits; how many they are. Reads beyond.
size_t PlacesOf(const std::byte* bits, size_t count, uint16_t* places) {
  constexpr size_t kWord = 64;
  size_t found = 0;
  for (size_t at = 0; at < count; at += kWord) {
    uint64_t word;
    std::memcpy(&word, bits + at / 8, sizeof(word));
    if (count - at < kWord) word &= (uint64_t{1} << (count - at)) - 1;
    for (; word != 0; word &= word - 1)
      places[found++] = static_cast<uint16_t>(at + static_cast<size_t>(std::countr_zero(word)));
  }
  return found;
}

void Zero(std::span<float> block) { std::memset(block.data(), 0, block.size_bytes()); }
void Zero(std::span<int64_t> block) { BestBlockKernels().zero(block.data(), block.size()); }

// block ← zeros, and the values at their places.
template <typename T>
void Spread(std::span<const T> values, std::span<const uint16_t> places, std::span<T> block) {
  Zero(block);
  for (size_t i = 0; i < values.size(); ++i) block[places[i]] = values[i];
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

absl::Status BlockReader::Open(size_t count, uint16_t* places, Block& block) {
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
  const unsigned kind = tag & kKindMask, where = (tag >> kPlacesShift) & 3;
  if ((tag & ~kKnownBits) != 0 || kind == 0 ||
      kind > static_cast<unsigned>(BlockWriter::Kind::kLevels) ||
      where > static_cast<unsigned>(BlockWriter::Places::kList))
    return Damaged(absl::StrCat("has the unknown tag ", tag));
  block.kind = static_cast<BlockWriter::Kind>(kind);
  block.no_zero = (tag & kNoZeroBit) != 0;
  block.all = where == static_cast<unsigned>(BlockWriter::Places::kAll);
  block.values = count;
  if (block.all) return absl::OkStatus();
  uint64_t values = 0;
  if (!Varint(count, values) || values == 0) return Damaged("has no count of values");
  block.values = values;
  bool good = false;
  if (where == static_cast<unsigned>(BlockWriter::Places::kList)) {
    const Padded bits(*this, values * kPlaceBits);
    good = bits.data() != nullptr;
    if (good) {
      BestBlockKernels().short_codes(bits.data(), values, kPlaceBits, places);
      good = Ascend({places, values}, count);
    }
  } else {
    const Padded bits(*this, count);
    good = bits.data() != nullptr && PlacesOf(bits.data(), count, places) == values;
  }
  return good ? absl::OkStatus() : Damaged("has places that do not fit");
}

absl::Status BlockReader::Integers(std::span<int64_t> block) {
  Block read;
  std::array<uint16_t, kBlock> places;
  if (absl::Status status = Open(block.size(), places.data(), read); !status.ok()) return status;
  if (read.zeros) {
    Zero(block);
    return absl::OkStatus();
  }
  if (read.kind != BlockWriter::Kind::kIntegers) return Damaged("holds no integers");
  const std::span<const std::byte> head = Raw(2);
  if (head.empty()) return Damaged("ends early");
  const auto width = static_cast<unsigned>(head[0]), shift = static_cast<unsigned>(head[1]);
  if (width == 0 || width > 64 || shift > 63) return Damaged("has integers of impossible width");
  const Padded bits(*this, uint64_t{read.values} * width);
  if (bits.data() == nullptr) return Damaged("ends early");
  std::array<int64_t, kBlock> some;
  BestBlockKernels().integers(bits.data(), read.values, width, shift,
                              read.all ? block.data() : some.data());
  if (!read.all) Spread<int64_t>(std::span(some).first(read.values), places, block);
  return absl::OkStatus();
}

absl::Status BlockReader::Values(std::span<float> block) {
  Block read;
  std::array<uint16_t, kBlock> places;
  if (absl::Status status = Open(block.size(), places.data(), read); !status.ok()) return status;
  if (read.zeros) {
    Zero(block);
    return absl::OkStatus();
  }
  if (read.all) return Decode(read, block.data());
  std::array<float, kBlock> some;
  if (absl::Status status = Decode(read, some.data()); !status.ok()) return status;
  Spread<float>(std::span(some).first(read.values), places, block);
  return absl::OkStatus();
}

absl::Status BlockReader::Values(size_t count, BlockValues& block) {
  Block read;
  if (absl::Status status = Open(count, block.places.data(), read); !status.ok()) return status;
  block.all = read.all && !read.zeros;
  block.count = read.values;
  return read.zeros ? absl::OkStatus() : Decode(read, block.values.data());
}

absl::Status BlockReader::Decode(const Block& block, float* values) {
  using Kind = BlockWriter::Kind;
  const BlockKernels& kernels = BestBlockKernels();
  const size_t count = block.values;
  std::array<uint16_t, kBlock> halves;
  const auto raw = [&](size_t size, void* to) {
    const std::span<const std::byte> from = Raw(count * size);
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return from.empty() ? Damaged("ends early") : absl::OkStatus();
  };
  switch (block.kind) {
    case Kind::kIntegers:
      return Damaged("holds integers instead of values");
    case Kind::kFloats:
      return raw(sizeof(float), values);
    case Kind::kHalves:
    case Kind::kBrains:
      if (absl::Status status = raw(sizeof(uint16_t), halves.data()); !status.ok()) return status;
      (block.kind == Kind::kHalves ? kernels.halves : kernels.brains)(halves.data(), count, values);
      return absl::OkStatus();
    case Kind::kLevels:
      break;
  }
  const std::span<const std::byte> head = Raw(sizeof(float) + 1);
  if (head.empty()) return Damaged("ends early");
  float step;
  std::memcpy(&step, head.data(), sizeof(step));
  const auto width = static_cast<unsigned>(head[sizeof(float)]);
  if (width > kMostLevelBits || !std::isfinite(step)) return Damaged("has impossible levels");
  const Padded bits(*this, uint64_t{count} * width);
  if (bits.data() == nullptr) return Damaged("ends early");
  if (width <= 8) {
    std::array<uint8_t, kBlock> codes;
    kernels.byte_codes(bits.data(), count, width, codes.data());
    kernels.levels(codes.data(), count, step, block.no_zero, values);
  } else {
    kernels.short_codes(bits.data(), count, width, halves.data());
    for (size_t i = 0; i < count; ++i) values[i] = Level(step, LevelFrom(halves[i], block.no_zero));
  }
  return absl::OkStatus();
}

}  // namespace macaw
