#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/vector.h"

namespace macaw {

// The compact form of numbers: blocks of at most kBlock neighbours of one tensor, each in the least
// of several exact forms. Nothing is rounded: BlockReader gives the
// numbers that BlockWriter was given.
//
//   byte 0 · varint n              n + 1 blocks of zeros
//   tag · [varint k · places] · kind's head · k values
//
// A tag names the kind of the values and where they stand. All bits of a block lie side by side,
// lowest first; each of its parts ends at a whole byte.
//
//   kind       head               a value
//   integers   width, shift       zigzag(q >> shift), `width` bits
//   floats                        32 bits
//   halves                        16 bits, IEEE 754 binary16
//   brains                        16 bits, the upper half of a float
//   levels     step (float), width  a whole number k in `width` bits; the value is float(step · k)
//
// Values stand at all places, or at the places of a bitmap, or of a list of nine-bit numbers, and
// are zero elsewhere.
inline constexpr size_t kBlock = 512;

// The blocks of a layout, in order: what lies between the tensors is no part of any.
void ForEachBlock(const ParameterLayout& layout,
                  absl::FunctionRef<void(uint64_t offset, size_t count)> use);

// Some neighbouring blocks of a layout, kBlocksOfPiece but for the last ones: from number `at` of a
// tensor on. Pieces can be written by several threads (BlockWriter::Join).
struct BlockPiece {
  size_t entry = 0;
  uint64_t at = 0;
};
inline constexpr size_t kBlocksOfPiece = 128;
std::vector<BlockPiece> BlockPiecesOf(const ParameterLayout& layout);
void ForEachBlockOf(const ParameterLayout& layout, const BlockPiece& piece,
                    absl::FunctionRef<void(uint64_t offset, size_t count)> use);

// What a block's values may be tried as, besides floats.
struct ValueForms {
  bool short_floats = false;  // halves and brains
  uint32_t levels = 0;        // levels up to this |k|; at most kMostLevels
};
inline constexpr uint32_t kMostLevels = 255;

// Writes blocks, or only counts their bytes. The last call is End.
class BlockWriter {
 public:
  // Appends to `out`; null: counts alone.
  explicit BlockWriter(std::vector<std::byte>* out) : out_(out) {}

  void Integers(std::span<const int64_t> block);
  void Values(std::span<const float> block, ValueForms forms);
  // For a count: Values of a block of `count` floats, so many of them not zero, without other
  // forms.
  void CountFloats(size_t nonzeros, size_t count);
  // Writes what `next`, which appends to a vector of its own and has not ended, was given, as if it
  // had been given to this one. `next` is of no more use.
  void Join(const BlockWriter& next);
  void End();

  uint64_t bytes() const { return bytes_; }  // so far, without blocks of zeros held back

 private:
  enum class Kind : uint8_t { kIntegers = 1, kFloats, kHalves, kBrains, kLevels };
  enum class Places : uint8_t { kAll = 0, kBitmap, kList };
  // How a block is written.
  struct Shape {
    Kind kind = Kind::kFloats;
    Places places = Places::kAll;
    size_t values = 0;     // how many are written
    unsigned width = 32;   // bits of each
    unsigned shift = 0;    // kIntegers
    float step = 0;        // kLevels
    bool no_zero = false;  // kLevels: zero is no value, which saves a number
    uint64_t bytes = ~uint64_t{0};
  };
  class Bits;

  static Shape Least(Shape all, Shape some, size_t count);
  static uint64_t SizeOf(const Shape& shape, size_t count);
  void Zeros();
  void Head(const Shape& shape, std::span<const uint16_t> places, size_t count);
  void PutLevels(const Shape& shape, float inverse, std::span<const float> values);
  void Byte(unsigned value);
  void Varint(uint64_t value);
  void Append(std::span<const std::byte> bytes);

  std::vector<std::byte>* const out_;
  uint64_t bytes_ = 0;
  uint64_t zeros_ = 0;  // blocks held back
  friend class BlockReader;
};

// A block's values without the zeros that are not written.
struct BlockValues {
  bool all = true;  // they stand at all places
  size_t count = 0;
  std::array<float, kBlock> values;
  std::array<uint16_t, kBlock> places;  // unless `all`: of each value, ascending
};

// Reads what BlockWriter wrote. Any bytes give numbers or an error. Blocks have kBlock numbers at
// most.
class BlockReader {
 public:
  explicit BlockReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Whether the next block holds integers; others hold values. False, too, after the last byte.
  bool HasIntegers() const;
  // Reads the next block as what it holds. A block of zeros is both.
  absl::Status Integers(std::span<int64_t> block);
  absl::Status Values(std::span<float> block);
  // The next block, of `count` numbers.
  absl::Status Values(size_t count, BlockValues& block);

  // The next `count` bytes; empty if so many are not there.
  std::span<const std::byte> Raw(size_t count);
  // After a writer's End: an error if blocks of zeros are announced that were not read.
  absl::Status End() const;
  size_t left() const { return bytes_.size() - at_; }
  // The bytes that follow.
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }

 private:
  struct Block;
  class Padded;
  // `places`: room for kBlock.
  absl::Status Open(size_t count, uint16_t* places, Block& block);
  absl::Status Decode(const Block& block, float* values);
  bool Varint(uint64_t most, uint64_t& value);

  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t zeros_ = 0;
};

}  // namespace macaw
