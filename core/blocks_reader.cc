#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/block_format.h"
#include "core/blocks.h"
#include "core/half.h"

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
using block_format::Unzigzag;

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
