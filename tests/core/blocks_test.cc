#include "core/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "core/digest.h"
#include "core/half.h"
#include "core/random.h"

namespace macaw {
namespace {

using Floats = std::vector<float>;
using Integers = std::vector<int64_t>;

struct Written {
  std::vector<std::byte> bytes;
  uint64_t counted = 0;
};

template <typename Block>
Written Write(const std::vector<Block>& blocks, ValueForms forms = {}) {
  Written written;
  BlockWriter writer(&written.bytes), counter(nullptr);
  for (const Block& block : blocks) {
    for (BlockWriter* to : {&writer, &counter}) {
      if constexpr (std::is_same_v<Block, Floats>) {
        to->Values(block, forms);
      } else {
        to->Integers(block);
      }
    }
  }
  writer.End();
  counter.End();
  EXPECT_EQ(writer.bytes(), written.bytes.size());
  written.counted = counter.bytes();
  return written;
}

// What is read must have the bits that were written, and nothing may be left.
template <typename Block>
size_t SizeOf(const std::vector<Block>& blocks, ValueForms forms = {}) {
  const Written written = Write(blocks, forms);
  EXPECT_EQ(written.counted, written.bytes.size());
  BlockReader reader(written.bytes);
  for (const Block& block : blocks) {
    Block read(block.size(), 7);
    absl::Status status;
    if constexpr (std::is_same_v<Block, Floats>) {
      status = reader.Values(read);
    } else {
      status = reader.Integers(read);
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(read.data(), block.data(), block.size() * sizeof(block[0])), 0);
  }
  EXPECT_EQ(reader.left(), 0u);
  EXPECT_TRUE(reader.End().ok());
  return written.bytes.size();
}

Floats Normals(size_t count, uint64_t seed) {
  RandomStream random({.seed = seed});
  Floats values(count);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

TEST(Blocks, FloatsTakeFourBytesEach) {
  EXPECT_EQ(SizeOf<Floats>({Normals(512, 1)}), 1u + 4 * 512);
  EXPECT_EQ(SizeOf<Floats>({Normals(1, 1)}), 1u + 4);
  EXPECT_EQ(SizeOf<Floats>({Normals(512, 1), Normals(3, 2)}), 2u + 4 * 515);
}

TEST(Blocks, AnyNumberOfBlocksOfZerosIsOne) {
  EXPECT_EQ(SizeOf<Floats>({Floats(512), Floats(512), Floats(17)}), 2u);
  EXPECT_EQ(SizeOf<Integers>({Integers(512), Integers(3)}), 2u);
  EXPECT_EQ(SizeOf<Floats>(std::vector<Floats>(1000, Floats(2))), 3u);
  EXPECT_EQ(SizeOf<Floats>({Floats(5), Floats(5, 1.0f), Floats(5)}), 2u + 21 + 2);
}

TEST(Blocks, FewValuesAreListedWithTheirPlaces) {
  Floats values(512);
  values[3] = 1.5f;
  values[500] = -2;
  // Tag, count, two places of nine bits, two floats.
  EXPECT_EQ(SizeOf<Floats>({values}), 1u + 1 + 3 + 8);
  // With more than one in nine a bitmap is shorter.
  for (size_t i = 0; i < 512; i += 6) values[i] = 1.1f + static_cast<float>(i);
  EXPECT_EQ(SizeOf<Floats>({values}), 1u + 1 + 64 + 4 * 88);
}

TEST(Blocks, MinusZeroIsKept) {
  Floats values(512);
  values[7] = -0.0f;
  EXPECT_GT(SizeOf<Floats>({values}, {.short_floats = true, .levels = 3}), 2u);
  values = Floats(512, -0.0f);
  values[9] = 3;
  SizeOf<Floats>({values}, {.short_floats = true, .levels = 3});
}

TEST(Blocks, SignsTakeABit) {
  Floats values = Normals(512, 3);
  for (float& value : values) value = value > 0 ? 0.0173f : -0.0173f;
  EXPECT_EQ(SizeOf<Floats>({values}, {.levels = 1}), 1u + 5 + 64);
  EXPECT_EQ(SizeOf<Floats>({values}), 1u + 4 * 512) << "levels are looked for only if asked";
  values[5] = 0;  // a third number
  EXPECT_EQ(SizeOf<Floats>({values}, {.levels = 1}), 1u + 5 + 128);
}

TEST(Blocks, FewSignsTakeABitAndAPlace) {
  Floats values(512);
  for (const size_t place : {1, 40, 41, 300, 511}) values[place] = place % 2 == 0 ? 0.3f : -0.3f;
  EXPECT_EQ(SizeOf<Floats>({values}, {.levels = 1}), 1u + 1 + 6 + 5 + 1);
}

class BlocksOfLevels : public ::testing::TestWithParam<int> {};

TEST_P(BlocksOfLevels, TakeTheBitsOfTheirNumber) {
  const int most = GetParam();
  RandomStream random({.seed = 5});
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto step = static_cast<float>(std::exp(10 * random.Normal()));
    Floats values(512);
    int largest = 0;
    for (float& value : values) {
      const int k = static_cast<int>(random.Below(static_cast<uint64_t>(2 * most + 1))) - most;
      largest = std::max(largest, std::abs(k));
      value = static_cast<float>(double{step} * k);
    }
    const auto width = static_cast<size_t>(std::bit_width(static_cast<unsigned>(2 * largest)));
    EXPECT_LE(SizeOf<Floats>({values}, {.levels = static_cast<uint32_t>(most)}), 1 + 5 + 64 * width)
        << step;
  }
}

// The largest values of a sparse vector have no small multiples among them.
TEST_P(BlocksOfLevels, NeedNoSmallMultiples) {
  const int most = GetParam();
  RandomStream random({.seed = 6});
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto step = static_cast<float>(std::exp(random.Normal()));
    Floats values(512);
    for (size_t i = 0; i < 512; i += 50) {
      const int k = most - static_cast<int>(random.Below(static_cast<uint64_t>(most + 1) / 2));
      values[i] = static_cast<float>(double{step} * (random.Below(2) == 0 ? k : -k));
    }
    EXPECT_LE(SizeOf<Floats>({values}, {.levels = static_cast<uint32_t>(most)}),
              1u + 1 + 13 + 5 + 13);
  }
}

INSTANTIATE_TEST_SUITE_P(UpTo, BlocksOfLevels, ::testing::Values(1, 2, 7, 127, 255));

TEST(Blocks, ShortFloatsTakeTwoBytes) {
  Floats halves = Normals(512, 8), brains = Normals(512, 9);
  for (float& value : halves) value = FromHalf(ToHalf(value));
  for (float& value : brains)
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
  EXPECT_EQ(SizeOf<Floats>({halves}, {.short_floats = true}), 1u + 2 * 512);
  EXPECT_EQ(SizeOf<Floats>({brains}, {.short_floats = true}), 1u + 2 * 512);
  EXPECT_EQ(SizeOf<Floats>({halves}), 1u + 4 * 512);
}

TEST(Blocks, FloatsThatAreNoNumbersPass) {
  Floats values = Normals(20, 1);
  values[3] = std::numeric_limits<float>::infinity();
  values[4] = std::numeric_limits<float>::quiet_NaN();
  SizeOf<Floats>({values}, {.short_floats = true, .levels = 255});
  SizeOf<Floats>({Floats{std::numeric_limits<float>::denorm_min(), 3e38f}},
                 {.short_floats = true, .levels = 255});
}

// Blocks of which many are zero, in runs.
std::vector<Integers> WithRunsOfZeros(RandomStream& random) {
  std::vector<Integers> blocks(random.Below(60));
  bool zeros = false;
  for (Integers& block : blocks) {
    if (random.Below(5) == 0) zeros = !zeros;
    block.resize(1 + random.Below(40));
    if (zeros) continue;
    for (int64_t& integer : block) integer = static_cast<int64_t>(random.Below(9)) - 4;
  }
  return blocks;
}

TEST(Blocks, PiecesThatAreJoinedHaveTheBytesOfOneWriter) {
  RandomStream random({.seed = 21});
  for (int i = 0; i < 500; ++i) {
    const std::vector<Integers> blocks = WithRunsOfZeros(random);
    const Written whole = Write(blocks);
    std::vector<std::byte> joined;
    BlockWriter writer(&joined);
    for (size_t at = 0; at < blocks.size();) {
      std::vector<std::byte> bytes;
      BlockWriter piece(&bytes);
      const size_t end = std::min<size_t>(at + random.Below(12), blocks.size());
      for (; at < end; ++at) piece.Integers(blocks[at]);
      writer.Join(piece);
    }
    writer.End();
    ASSERT_EQ(joined, whole.bytes);
    EXPECT_EQ(writer.bytes(), joined.size());
  }
  // A run whose length takes several bytes.
  std::vector<std::byte> bytes, joined;
  BlockWriter piece(&bytes), writer(&joined);
  std::vector<Integers> blocks(1000, Integers(3));
  blocks.push_back({1, 2});
  for (const Integers& block : blocks) piece.Integers(block);
  writer.Integers(Integers(5));
  writer.Join(piece);
  writer.End();
  blocks.insert(blocks.begin(), Integers(5));
  EXPECT_EQ(joined, Write(blocks).bytes);
}

TEST(Blocks, PiecesOfALayoutAreItsBlocksInOrder) {
  RandomStream random({.seed = 22});
  for (int i = 0; i < 30; ++i) {
    std::vector<LayoutEntry> entries;
    for (size_t t = 0; t < 1 + random.Below(20); ++t) {
      const auto size =
          static_cast<int64_t>(random.Below(4) == 0 ? random.Below(200'000) : random.Below(2000));
      entries.push_back({.name = std::to_string(t), .shape = {size + 1}});
    }
    const LayoutPtr layout = *ParameterLayout::Make(entries, DType::kF32);
    using Blocks = std::vector<std::pair<uint64_t, size_t>>;
    Blocks blocks, of_pieces;
    ForEachBlock(*layout, [&](uint64_t at, size_t count) { blocks.emplace_back(at, count); });
    for (const BlockPiece& piece : BlockPiecesOf(*layout)) {
      const size_t before = of_pieces.size();
      ForEachBlockOf(*layout, piece,
                     [&](uint64_t at, size_t count) { of_pieces.emplace_back(at, count); });
      EXPECT_LE(of_pieces.size() - before, kBlocksOfPiece);
    }
    ASSERT_EQ(of_pieces, blocks);
  }
}

TEST(Blocks, IntegersTakeTheBitsThatTheyUse) {
  // 21 bits of magnitude and a sign; the low ten bits are no information.
  Integers integers(512);
  for (size_t i = 0; i < 512; ++i)
    integers[i] = (static_cast<int64_t>(i) * 4096 - 1000000 + 1) * 1024;
  EXPECT_EQ(SizeOf<Integers>({integers}), 1u + 2 + 64 * 22);
  Integers extremes = {INT64_MIN, INT64_MAX, 0, -1, 1};
  EXPECT_EQ(SizeOf<Integers>({extremes}), 1u + 1 + 1 + 2 + 4 * 8) << "with a bitmap";
  Integers few(512);
  few[77] = int64_t{-5} << 40;
  EXPECT_EQ(SizeOf<Integers>({few}), 1u + 1 + 2 + 2 + 1);
}

TEST(Blocks, ACountOfFloatsIsThatOfTheirBlocks) {
  RandomStream random({.seed = 12});
  BlockWriter counter(nullptr);
  std::vector<Floats> blocks;
  for (int i = 0; i < 300; ++i) {
    Floats block = Normals(1 + random.Below(512), static_cast<uint64_t>(i));
    const double kept = i % 3 == 0 ? 0 : random.Uniform();
    for (float& value : block) value = random.Uniform() < kept ? value : 0;
    const auto zeros = std::ranges::count(block, 0.0f);
    counter.CountFloats(block.size() - static_cast<size_t>(zeros), block.size());
    blocks.push_back(std::move(block));
  }
  counter.End();
  EXPECT_EQ(counter.bytes(), Write(blocks).bytes.size());
}

// Of all forms, with the values that search for a step finds hard: the least and the largest
// floats, few multiples, values beside a level. A reader of any release reads these bytes.
TEST(Blocks, TheirBytesStay) {
  RandomStream random({.seed = 21});
  std::vector<std::byte> bytes;
  BlockWriter writer(&bytes);
  for (int i = 0; i < 3000; ++i) {
    Floats block(i % 3 == 0 ? 1 + random.Below(512) : 512);
    const int most = 1 + static_cast<int>(random.Below(255));
    const auto step =
        std::bit_cast<float>(static_cast<uint32_t>(1 + random.Below(0x7b000000u - 1)));
    const uint64_t kept = 1 + random.Below(i % 2 == 0 ? 1 : 30);
    for (float& value : block) {
      if (random.Below(kept) != 0) continue;
      const int k = static_cast<int>(random.Below(static_cast<uint64_t>(2 * most + 1))) - most;
      const auto any = static_cast<uint32_t>(random.NextU64());
      value = i % 10 == 0   ? FromHalf(static_cast<uint16_t>(any))
              : i % 10 == 1 ? std::bit_cast<float>(any & 0xffff0000u)
              : i % 10 == 2 ? std::bit_cast<float>(any)
                            : static_cast<float>(double{step} * k);
    }
    if (i % 10 == 3) block[0] = std::bit_cast<float>(std::bit_cast<uint32_t>(block[0]) ^ 1u);
    writer.Values(block, {.short_floats = i % 4 != 3, .levels = i % 5 == 0 ? 7u : 255u});
  }
  writer.End();
  EXPECT_EQ(DigestOf(bytes).Hex(),
            "4adc16bbaa09dd27070d99c6a319298bb7b458946854a971269ae759aae04985");
}

// A block as it is described in blocks.h, read bit by bit.
class PlainReader {
 public:
  explicit PlainReader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}

  // The next block's numbers: integers, or the bits of floats. Nothing: it is damaged.
  std::optional<std::vector<uint64_t>> Next(size_t count, bool integers) {
    std::vector<uint64_t> block(count, 0);
    if (zeros_ > 0) {
      --zeros_;
      return block;
    }
    const uint64_t tag = Take(8);
    if (tag == 0 && good_) zeros_ = Varint(uint64_t{1} << 40);
    if (tag == 0) return Good(block);
    const uint64_t kind = tag & 7, where = tag >> 3 & 3, no_zero = tag >> 5 & 1;
    if (tag >> 6 != 0 || kind == 0 || kind > 5 || where > 2) return std::nullopt;
    std::vector<size_t> places(count);
    std::iota(places.begin(), places.end(), 0);
    if (where != 0) {
      const uint64_t values = Varint(count);
      if (values == 0 || !good_) return std::nullopt;
      places.clear();
      if (where == 1) {
        for (size_t i = 0; i < count; ++i)
          if (Take(1) != 0) places.push_back(i);
      } else {
        for (size_t i = 0; i < values && good_; ++i) {
          places.push_back(Take(9));
          if (places[i] >= count || (i > 0 && places[i] <= places[i - 1])) return std::nullopt;
        }
      }
      Align();
      if (places.size() != values || !good_) return std::nullopt;
    }
    if (integers != (kind == 1)) return std::nullopt;
    uint64_t width = kind == 2 ? 32 : 16, shift = 0;
    float step = 0;
    if (kind == 1) {
      width = Take(8);
      shift = Take(8);
      if (width == 0 || width > 64 || shift > 63) return std::nullopt;
    } else if (kind == 5) {
      step = std::bit_cast<float>(static_cast<uint32_t>(Take(32)));
      width = Take(8);
      if (width > 9 || !std::isfinite(step)) return std::nullopt;
    }
    for (const size_t place : places) {
      const uint64_t code = Take(width);
      if (!good_) return std::nullopt;
      float value = std::bit_cast<float>(static_cast<uint32_t>(code));
      if (kind == 3) value = FromHalf(static_cast<uint16_t>(code));
      if (kind == 4) value = std::bit_cast<float>(static_cast<uint32_t>(code << 16));
      if (kind == 5) {
        const int from_one = static_cast<int>(code + no_zero) + 1;
        value = static_cast<float>(double{step} * (from_one / 2 * (from_one % 2 == 0 ? 1 : -1)));
      }
      const uint64_t integer = (code >> 1 ^ (code % 2 == 0 ? 0 : ~uint64_t{0})) << shift;
      block[place] = kind == 1 ? integer : std::bit_cast<uint32_t>(value);
    }
    Align();
    return Good(block);
  }

 private:
  uint64_t Take(uint64_t bits) {
    uint64_t value = 0;
    for (uint64_t bit = 0; bit < bits; ++bit, ++at_) {
      if (at_ / 8 >= bytes_.size()) {
        good_ = false;
        return 0;
      }
      value |= (static_cast<uint64_t>(bytes_[at_ / 8]) >> at_ % 8 & 1) << bit;
    }
    return value;
  }
  uint64_t Varint(uint64_t most) {
    uint64_t value = 0;
    for (int i = 0; i < 9 && good_; ++i) {
      const uint64_t byte = Take(8);
      value |= (byte & 127) << 7 * i;
      if (byte >= 128) continue;
      good_ = good_ && value <= most;
      return value;
    }
    good_ = false;
    return 0;
  }
  void Align() { at_ = (at_ + 7) / 8 * 8; }
  std::optional<std::vector<uint64_t>> Good(std::vector<uint64_t>& block) const {
    return good_ ? std::optional(std::move(block)) : std::nullopt;
  }

  const std::vector<std::byte>& bytes_;
  size_t at_ = 0;  // bits
  uint64_t zeros_ = 0;
  bool good_ = true;
};

// Whether the reader refuses or gives what the plain one does; it is at the end then. Of each
// block's size.
size_t CompareWithPlain(const std::vector<std::byte>& bytes, const std::vector<size_t>& sizes) {
  // Their own memory, so that a sanitizer sees what is read beyond.
  const std::vector<std::byte> exact(bytes);
  BlockReader reader(exact), sparse(exact);
  PlainReader plain(exact);
  for (size_t read = 0; read < sizes.size(); ++read) {
    const size_t size = sizes[read];
    const bool integers = reader.HasIntegers();
    const auto expected = plain.Next(size, integers);
    Integers as_integers(size, 7);
    Floats as_floats(size, 7), spread(size);
    BlockValues some;
    const absl::Status status = integers ? reader.Integers(as_integers) : reader.Values(as_floats);
    const absl::Status other = integers ? sparse.Integers(as_integers) : sparse.Values(size, some);
    EXPECT_EQ(status.ok(), expected.has_value()) << status;
    EXPECT_EQ(other.message(), status.message());
    if (!status.ok() || !expected.has_value()) return read;
    for (size_t i = 0; !integers && i < some.count; ++i)
      spread[some.all ? i : some.places[i]] = some.values[i];
    for (size_t i = 0; i < size; ++i) {
      const uint64_t number =
          integers ? static_cast<uint64_t>(as_integers[i]) : std::bit_cast<uint32_t>(as_floats[i]);
      EXPECT_EQ(number, (*expected)[i]);
      if (!integers) {
        EXPECT_EQ(std::bit_cast<uint32_t>(spread[i]), (*expected)[i]);
      }
      if (number != (*expected)[i]) return read;
    }
    EXPECT_EQ(reader.left(), sparse.left());
  }
  return sizes.size();
}

// Blocks of any form, each written after the other, and of any size.
TEST(Blocks, AreReadAsAPlainReaderReadsThem) {
  RandomStream random({.seed = 31});
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
    BlockWriter writer(&bytes);
    for (uint64_t blocks = 1 + random.Below(4); blocks > 0; --blocks) {
      constexpr size_t kEdges[] = {1, 7, 8, 9, 63, 64, 65, 127, 511, 512};
      const size_t size =
          random.Below(2) == 0 ? kEdges[random.Below(std::size(kEdges))] : 1 + random.Below(512);
      sizes.push_back(size);
      const uint64_t kept = 1 + random.Below(3) * random.Below(100);
      const auto width = static_cast<int>(random.Below(64));
      const int most = 1 + static_cast<int>(random.Below(255));
      const auto step = static_cast<float>(std::exp(5 * random.Normal()));
      Integers integers(size);
      Floats floats(size);
      const uint64_t kind = random.Below(5);
      for (size_t at = 0; at < size; ++at) {
        if (random.Below(kept) != 0) continue;
        const auto any = static_cast<uint32_t>(random.NextU64());
        const int k = static_cast<int>(random.Below(static_cast<uint64_t>(2 * most + 1))) - most;
        integers[at] = static_cast<int64_t>(random.NextU64()) >> width;
        floats[at] = kind == 1   ? std::bit_cast<float>(any)
                     : kind == 2 ? FromHalf(static_cast<uint16_t>(any))
                     : kind == 3 ? std::bit_cast<float>(any & 0xffff0000u)
                                 : static_cast<float>(double{step} * k);
      }
      kind == 0 ? writer.Integers(integers)
                : writer.Values(floats, {.short_floats = true, .levels = 255});
    }
    writer.End();
    ASSERT_EQ(CompareWithPlain(bytes, sizes), sizes.size());
    if (testing::Test::HasFailure()) return;
    // A byte changed, some cut off, or bytes of any kind behind a good tag.
    const std::vector<std::byte> good = bytes;
    for (int change = 0; change < 10; ++change) {
      bytes = good;
      bytes[random.Below(change % 2 == 0 ? std::min<size_t>(bytes.size(), 9) : bytes.size())] =
          static_cast<std::byte>(random.Below(256));
      if (random.Below(3) == 0) bytes.resize(random.Below(bytes.size() + 1));
      CompareWithPlain(bytes, sizes);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Random bytes, and a bit changed in good ones, give numbers or an error.
TEST(Blocks, AnyBytesAreRead) {
  RandomStream random({.seed = 4});
  Floats sparse(512), levels(512, 0.25f);
  sparse[3] = 1;
  levels[7] = -0.5f;
  const std::vector<std::byte> good =
      Write<Floats>({Normals(512, 1), sparse, levels, Floats(512), Normals(9, 2)},
                    {.short_floats = true, .levels = 3})
          .bytes;
  size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = good;
    if (i % 2 == 0) {
      bytes.resize(random.Below(200));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    } else {
      const uint64_t bit = random.Below(bytes.size() * 8);
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      bytes.resize(bytes.size() - random.Below(2) * random.Below(bytes.size()));
    }
    BlockReader reader(bytes);
    Floats values(512);
    Integers integers(512);
    for (int block = 0; block < 4; ++block) {
      const absl::Status status =
          reader.HasIntegers() ? reader.Integers(integers) : reader.Values(values);
      refused += status.ok() ? 0 : 1;
      if (!status.ok()) break;
    }
  }
  EXPECT_GT(refused, 5000u);
}

TEST(Blocks, RefusesPlacesThatDoNotAscend) {
  Floats values(512);
  values[3] = 1.5f;
  values[500] = -2;
  std::vector<std::byte> bytes = Write<Floats>({values}).bytes;
  bytes[2] = static_cast<std::byte>(0xff);  // the first place: 511, behind the second
  bytes[3] |= static_cast<std::byte>(1);
  BlockReader reader(bytes);
  EXPECT_THAT(std::string(reader.Values(values).message()), ::testing::HasSubstr("places"));
}

}  // namespace
}  // namespace macaw
