#include "core/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/half.h"
#include "core/random.h"
#include "tests/core/written_blocks.h"

namespace macaw {
namespace {

using testing_support::Floats;
using testing_support::Integers;
using testing_support::Normals;
using testing_support::Write;
using testing_support::Written;

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

}  // namespace
}  // namespace macaw
