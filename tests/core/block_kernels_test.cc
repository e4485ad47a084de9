#include "core/block_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/block_format.h"
#include "core/half.h"
#include "core/random.h"

namespace macaw {
namespace {

using Floats = std::vector<float>;

constexpr size_t kRoom = 512;  // for whole groups of codes
constexpr float kBlockInfinity = std::numeric_limits<float>::infinity();

class EveryBlockKernel : public testing::TestWithParam<Isa> {
 protected:
  const BlockKernels& kernels_ = BlockKernelsOf(GetParam());
};

TEST_P(EveryBlockKernel, ScansWhatABlockHolds) {
  const auto scan = [&](const Floats& values) {
    return kernels_.scan(values.data(), values.size());
  };
  for (const size_t zeros : {0u, 1u, 7u, 70u}) {
    Floats values(zeros);
    EXPECT_EQ(scan(values).nonzeros, 0u);
    EXPECT_EQ(scan(values).largest, 0u);
    EXPECT_EQ(scan(values).smallest, 0u);
    values.insert(values.end(), {-3, 0.5f, 0, 1.00001f});
    BlockScan found = scan(values);
    EXPECT_EQ(found.nonzeros, 3u);
    EXPECT_EQ(found.largest, std::bit_cast<uint32_t>(3.0f));
    EXPECT_EQ(found.smallest, std::bit_cast<uint32_t>(0.5f));
    EXPECT_FALSE(found.has_minus_zero || found.are_brains);
    values.back() = -0.0f;
    found = scan(values);
    EXPECT_EQ(found.nonzeros, 3u);
    EXPECT_EQ(found.smallest, std::bit_cast<uint32_t>(0.5f));
    EXPECT_TRUE(found.has_minus_zero && found.are_brains);
    values.back() = std::bit_cast<float>(1u);
    EXPECT_EQ(scan(values).smallest, 1u);
    values.front() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_GT(scan(values).largest, std::bit_cast<uint32_t>(kBlockInfinity));
  }
}

TEST_P(EveryBlockKernel, KnowsHalvesAndTheirCodes) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const Floats value(9, FromHalf(static_cast<uint16_t>(code)));
    const bool is_number = !std::isnan(value[0]);
    ASSERT_EQ(kernels_.are_halves(value.data(), value.size()), is_number) << code;
    std::vector<uint16_t> codes(value.size());
    kernels_.half_codes(value.data(), value.size(), codes.data());
    if (is_number) {
      ASSERT_EQ(codes, std::vector<uint16_t>(value.size(), static_cast<uint16_t>(code)));
    }
  }
  RandomStream random({.seed = 1});
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.NextU64()));
    Floats values(1 + random.Below(80));
    values[random.Below(values.size())] = value;
    ASSERT_EQ(kernels_.are_halves(values.data(), values.size()), FromHalf(ToHalf(value)) == value)
        << value;
  }
}

TEST_P(EveryBlockKernel, KnowsLevelsAndTheirCodes) {
  RandomStream random({.seed = 2});
  for (int i = 0; i < 3000; ++i) {
    // From the least step whose inverse is a float to the largest.
    const auto step = std::bit_cast<float>(
        0x00200001u + static_cast<uint32_t>(random.Below(0x7b800000u - 0x00200001u)));
    const float inverse = 1 / step;
    ASSERT_TRUE(std::isfinite(inverse)) << step;
    const bool no_zero = random.Below(2) == 0;
    const int most = no_zero ? 128 : 127;
    Floats values(1 + random.Below(200));
    std::vector<uint8_t> expected, codes(values.size());
    for (float& value : values) {
      int k = static_cast<int>(random.Below(static_cast<uint64_t>(2 * most + 1))) - most;
      if (no_zero && k == 0) k = -1;
      value = static_cast<float>(double{step} * k);
      expected.push_back(static_cast<uint8_t>(2 * std::abs(k) - (k > 0 ? 1 : 0) - no_zero));
    }
    ASSERT_TRUE(kernels_.are_levels(values.data(), values.size(), step, inverse)) << step;
    kernels_.level_codes(values.data(), values.size(), inverse, no_zero, codes.data());
    ASSERT_EQ(codes, expected) << step;
    float& one = values[random.Below(values.size())];
    const float before = one;
    for (const float towards : {kBlockInfinity, -kBlockInfinity}) {
      one = std::nextafterf(before, towards);
      // The least floats have levels beside each other.
      if (std::fabs(step) > 1e-37f) {
        ASSERT_FALSE(kernels_.are_levels(values.data(), values.size(), step, inverse)) << step;
      }
    }
  }
}

// The bits from `first` on, one by one.
uint64_t PlainBits(const std::vector<std::byte>& bytes, size_t first, unsigned width) {
  uint64_t value = 0;
  for (unsigned bit = 0; bit < width; ++bit) {
    const size_t at = first + bit;
    value |= (static_cast<uint64_t>(bytes[at / 8]) >> at % 8 & 1) << bit;
  }
  return value;
}

TEST_P(EveryBlockKernel, ReadsCodesOfAllWidthsFromEveryAddress) {
  RandomStream random({.seed = 3});
  for (unsigned width = 0; width <= 64; ++width) {
    for (const size_t count : {1u, 2u, 7u, 8u, 9u, 63u, 64u, 65u, 511u, 512u}) {
      const size_t skipped = random.Below(9);
      // No byte more than may be read.
      std::vector<std::byte> bytes(skipped + (count * width + 7) / 8 + kBytesBeyond);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
      const std::byte* const from = bytes.data() + skipped;
      const auto shift = static_cast<unsigned>(random.Below(64));
      std::vector<uint8_t> short_bytes(kRoom);
      std::vector<uint16_t> shorts(count);
      std::vector<int64_t> integers(count);
      if (width <= 8) kernels_.byte_codes(from, count, width, short_bytes.data());
      if (width <= 16) kernels_.short_codes(from, count, width, shorts.data());
      if (width >= 1) kernels_.integers(from, count, width, shift, integers.data());
      for (size_t i = 0; i < count; ++i) {
        const uint64_t code = PlainBits(bytes, 8 * skipped + i * width, width);
        if (width <= 8) {
          ASSERT_EQ(short_bytes[i], code) << width << " " << count << " " << i;
        }
        if (width <= 16) {
          ASSERT_EQ(shorts[i], code) << width << " " << count << " " << i;
        }
        if (width >= 1) {
          const uint64_t integer = (code & 1) == 0 ? code / 2 : ~(code / 2);
          ASSERT_EQ(static_cast<uint64_t>(integers[i]), integer << shift)
              << width << " " << count << " " << i;
        }
      }
    }
  }
}

// An integer whose code has `width` bits at most, and of which the last `shift` bits are zero.
int64_t IntegerOf(RandomStream& random, unsigned width, unsigned shift) {
  const uint64_t code = random.NextU64() >> (64 - width);
  return static_cast<int64_t>(static_cast<uint64_t>(block_format::Unzigzag(code)) << shift);
}

TEST_P(EveryBlockKernel, PacksIntegersOfAllWidthsAsOneByOne) {
  RandomStream random({.seed = 4});
  for (unsigned width = 1; width <= 64; ++width) {
    for (const size_t count : {1u, 2u, 7u, 8u, 9u, 63u, 64u, 65u, 127u, 511u, 512u}) {
      const auto shift = static_cast<unsigned>(random.Below(65 - width));
      std::vector<int64_t> integers(count), read(count);
      for (int64_t& integer : integers) integer = IntegerOf(random, width, shift);
      const size_t used = (count * width + 7) / 8, groups = (count + 7) / 8;
      std::vector<std::byte> packed(groups * width + kBytesBeyond, std::byte{0xff});
      kernels_.pack_integers(integers.data(), count, width, shift, packed.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(PlainBits(packed, i * width, width), block_format::Zigzag(integers[i] >> shift))
            << width << " " << count << " " << i;
      }
      for (size_t bit = count * width; bit < 8 * used; ++bit)
        ASSERT_EQ(PlainBits(packed, bit, 1), 0u) << "the rest of the last byte";
      kernels_.integers(packed.data(), count, width, shift, read.data());
      ASSERT_EQ(read, integers) << width << " " << count;
    }
  }
}

TEST_P(EveryBlockKernel, ScansTheBitsOfIntegers) {
  RandomStream random({.seed = 6});
  for (int i = 0; i < 3000; ++i) {
    const auto width = static_cast<unsigned>(1 + random.Below(64));
    const auto shift = static_cast<unsigned>(random.Below(65 - width));
    std::vector<int64_t> integers(1 + random.Below(100));
    for (int64_t& integer : integers)
      integer = random.Below(3) == 0 ? 0 : IntegerOf(random, width, shift);
    if (i == 0) integers = {INT64_MIN, INT64_MAX};
    if (i == 1) integers = {-1, 0};
    const IntegerScan scan = kernels_.scan_integers(integers.data(), integers.size());
    size_t nonzeros = 0;
    uint64_t seen = 0;
    for (const int64_t integer : integers) {
      nonzeros += integer != 0 ? 1 : 0;
      seen |= static_cast<uint64_t>(integer);
    }
    ASSERT_EQ(scan.nonzeros, nonzeros);
    ASSERT_EQ(scan.seen, seen);
    if (nonzeros == 0) continue;
    // The width that the codes need is that of the bits seen in them.
    const int zeros = std::countr_zero(seen);
    uint64_t codes = 0;
    for (const int64_t integer : integers) codes |= block_format::Zigzag(integer >> zeros);
    ASSERT_EQ(std::bit_width(scan.sizes >> zeros) + 1, std::bit_width(codes));
  }
}

TEST_P(EveryBlockKernel, GivesTheHalvesAndBrainsOfAllCodes) {
  for (const size_t offset : {0u, 1u, 5u}) {
    std::vector<uint16_t> codes(0x10000);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i + offset);
    Floats halves(codes.size()), brains(codes.size());
    kernels_.halves(codes.data() + offset, codes.size() - offset, halves.data() + offset);
    kernels_.brains(codes.data() + offset, codes.size() - offset, brains.data() + offset);
    for (size_t i = offset; i < codes.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(halves[i]), std::bit_cast<uint32_t>(FromHalf(codes[i])));
      ASSERT_EQ(std::bit_cast<uint32_t>(brains[i]), uint32_t{codes[i]} << 16);
    }
  }
}

TEST_P(EveryBlockKernel, ZeroesABlockAndNoMore) {
  for (const size_t count : {0u, 1u, 7u, 8u, 9u, 511u}) {
    std::vector<int64_t> integers(count + 2, 7);
    kernels_.zero(integers.data() + 1, count);
    EXPECT_EQ(integers.front(), 7);
    EXPECT_EQ(integers.back(), 7);
    EXPECT_EQ(std::count(integers.begin(), integers.end(), 0), static_cast<ptrdiff_t>(count));
  }
}

// Steps of any bits that are finite, also those that no writer takes.
TEST_P(EveryBlockKernel, GivesTheLevelsOfAllCodes) {
  RandomStream random({.seed = 5});
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  Floats values(codes.size());
  for (int i = 0; i < 3000; ++i) {
    auto step = std::bit_cast<float>(static_cast<uint32_t>(random.NextU64()));
    if (i < 4) step = std::bit_cast<float>(uint32_t{i % 2 == 0} << 31 | uint32_t{i >= 2});
    if (!std::isfinite(step)) continue;
    const bool no_zero = random.Below(2) == 0;
    kernels_.levels(codes.data(), codes.size(), step, no_zero, values.data());
    for (size_t code = 0; code < codes.size(); ++code) {
      const size_t from_one = code + (no_zero ? 2 : 1);
      const int k = static_cast<int>(from_one / 2) * (from_one % 2 == 0 ? 1 : -1);
      const auto level = static_cast<float>(double{step} * k);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[code]), std::bit_cast<uint32_t>(level)) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, EveryBlockKernel, testing::ValuesIn(SupportedIsas()),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace macaw
