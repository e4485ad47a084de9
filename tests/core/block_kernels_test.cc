#include "core/block_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/half.h"
#include "core/random.h"

namespace macaw {
namespace {

using Floats = std::vector<float>;

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

INSTANTIATE_TEST_SUITE_P(Of, EveryBlockKernel, testing::ValuesIn(SupportedIsas()),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace macaw
