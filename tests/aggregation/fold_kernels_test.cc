#include "aggregation/fold_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"

namespace macaw::aggregation {
namespace {

TEST(FoldKernels, RoundsHalfToEven) {
  const std::vector<float> values = {0.5F,  1.5F,        2.5F, -0.5F, -1.5F,
                                     -2.5F, 0.49999997F, 3.0F, -0.0F};
  const std::vector<int64_t> expected = {0, 2, 2, 0, -2, -2, 0, 3, 0};
  for (const Isa isa : SupportedIsas()) {
    std::vector<int64_t> sums(values.size());
    KernelsOf(isa).add_f32(values.data(), 1.0, sums.data(), values.size());
    EXPECT_EQ(sums, expected) << Name(isa);
  }
}

TEST(FoldKernels, RoundsUpToTheLargestProduct) {
  const std::vector<float> values = {1.0F, -1.0F};
  for (const Isa isa : SupportedIsas()) {
    const FoldKernels& kernels = KernelsOf(isa);
    std::vector<int64_t> sums(2);
    kernels.add_f32(values.data(), 0x1p50, sums.data(), 2);
    EXPECT_EQ(sums, (std::vector<int64_t>{int64_t{1} << 50, -(int64_t{1} << 50)}));
  }
}

TEST(FoldKernels, F64LimbsHoldTheExactProduct) {
  RandomStream random({.seed = 1});
  for (const Isa isa : SupportedIsas()) {
    const FoldKernels& kernels = KernelsOf(isa);
    for (int trial = 0; trial < 1000; ++trial) {
      const double value = random.Normal() * std::ldexp(1.0, -static_cast<int>(random.Below(30)));
      const double scale = std::ldexp(1 + random.Uniform(), 40);
      int64_t limbs[3] = {};
      kernels.add_f64(&value, scale, 0x1p48, limbs, 1);
      using Quad = _Float128;
      const Quad held = static_cast<Quad>(limbs[0]) + static_cast<Quad>(limbs[1]) * 0x1p-48 +
                        static_cast<Quad>(limbs[2]) * 0x1p-96;
      const Quad error = held - static_cast<Quad>(value) * static_cast<Quad>(scale);
      EXPECT_LE(std::fabs(static_cast<double>(error)), 0x1p-96);
    }
  }
}

TEST(FoldKernels, EveryInstructionSetGivesTheSameBits) {
  RandomStream random({.seed = 2});
  const FoldKernels& portable = KernelsOf(SupportedIsas().back());
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{1001}}) {
    std::vector<float> f32(count);
    std::vector<double> f64(count);
    for (size_t i = 0; i < count; ++i) {
      // Within what a grid allows: |value · scale| below 2^50.
      f64[i] = std::clamp(random.Normal() * std::pow(10.0, random.Normal() * 4), -1e8, 1e8);
      f32[i] = static_cast<float>(f64[i]);
    }
    const auto run = [&](const FoldKernels& kernels) {
      std::vector<int64_t> all;
      const auto keep = [&all](const std::vector<int64_t>& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      std::vector<int64_t> one(count), three(3 * count), most(count, kNoKey);
      std::vector<int64_t> set_one(count, 7), set_three(3 * count, 7), keys(count, 7);
      kernels.set_f32(f32.data(), 1234567.8, set_one.data(), count);
      kernels.set_f64(f64.data(), 1234567.8, 0x1p41, set_three.data(), count);
      kernels.key_f32(f32.data(), keys.data(), count);
      kernels.add_f32(f32.data(), 1234567.8, one.data(), count);
      kernels.add_f64(f64.data(), 1234567.8, 0x1p41, three.data(), count);
      kernels.max_f32(f32.data(), most.data(), count);
      EXPECT_EQ(set_one, one) << "what is stored is what would be added to zero";
      EXPECT_EQ(set_three, three);
      EXPECT_EQ(keys, most);
      kernels.key_f64(f64.data(), keys.data(), count);
      keep(keys);
      kernels.max_f64(f64.data(), most.data(), count);
      keep(one), keep(three), keep(most);
      kernels.merge_add(three.data(), one.data(), count);
      kernels.merge_max(three.data(), most.data(), count);
      keep(one), keep(most);
      std::vector<float> divided(count);
      kernels.divide_f32(three.data(), 0x1p-41, 1234567.8, divided.data(), count);
      for (const float value : divided) all.push_back(std::bit_cast<int32_t>(value));
      const auto [low, high] = kernels.span(three.data(), three.size());
      keep({low, high, kernels.largest_f32(f32.data(), count),
            static_cast<int64_t>(kernels.largest_f64(f64.data(), count))});
      return all;
    };
    for (const Isa isa : SupportedIsas())
      EXPECT_EQ(run(KernelsOf(isa)), run(portable)) << Name(isa) << " " << count;
  }
}

TEST(FoldKernels, FindsANanAtAnyPosition) {
  for (const Isa isa : SupportedIsas()) {
    const FoldKernels& kernels = KernelsOf(isa);
    for (size_t place = 0; place < 37; ++place) {
      std::vector<float> f32(37, 1e30F);
      std::vector<double> f64(37, -1e30);
      EXPECT_EQ(std::bit_cast<float>(kernels.largest_f32(f32.data(), 37)), 1e30F);
      EXPECT_EQ(std::bit_cast<double>(kernels.largest_f64(f64.data(), 37)), 1e30);
      f32[place] = -std::numeric_limits<float>::quiet_NaN();
      f64[place] = -std::numeric_limits<double>::infinity();
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(kernels.largest_f32(f32.data(), 37))));
      EXPECT_TRUE(std::isinf(std::bit_cast<double>(kernels.largest_f64(f64.data(), 37))));
    }
  }
}

TEST(OrderedKey, OrdersAsNumbersAndComesBack) {
  const std::vector<double> ascending = {-1e300, -1, -1e-310, -0.0, 0.0, 1e-310, 2, 1e300};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>(FromOrderedKey(OrderedKey(ascending[i]))),
              std::bit_cast<uint64_t>(ascending[i]));
    EXPECT_GT(OrderedKey(ascending[i]), kNoKey);
    if (i > 0) {
      EXPECT_LT(OrderedKey(ascending[i - 1]), OrderedKey(ascending[i]));
    }
  }
}

}  // namespace
}  // namespace macaw::aggregation
