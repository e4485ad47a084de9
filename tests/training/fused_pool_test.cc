#include <gtest/gtest.h>

#include <limits>

#include "tests/training/fused_testing.h"
#include "training/fused/pool.h"

namespace macaw::training::fused {
namespace {

constexpr size_t kBatch = 3;

std::vector<PoolPlan> Plans() {
  std::vector<PoolPlan> plans;
  for (const auto order : {Shape::Order::kPlanar, Shape::Order::kInterleaved}) {
    const auto in = [&](size_t channels, size_t height, size_t width, size_t pitch) {
      return Shape{channels, height, width, order, order == Shape::Order::kPlanar ? 0 : pitch};
    };
    plans.push_back({in(3, 6, 8, 3), 2, 2, 2});
    plans.push_back({in(5, 7, 5, 8), 3, 3, 2});    // overlapping
    plans.push_back({in(2, 9, 10, 2), 2, 2, 3});   // with gaps
    plans.push_back({in(20, 4, 6, 32), 4, 6, 1});  // of everything
    plans.push_back({in(1, 5, 5, 1), 1, 1, 1});
  }
  return plans;
}

// In the planar order of the shapes, example by example.
std::vector<float> Elements(const Shape& shape, const float* from) {
  std::vector<float> values;
  for (size_t e = 0; e < kBatch; ++e) {
    for (size_t i = 0; i < shape.elements(); ++i) {
      values.push_back(from[e * shape.stride() + shape.At(i)]);
    }
  }
  return values;
}

// Calls f(index of the output, index of the input) for each pixel of each window, in order.
template <typename F>
void ForEachPair(const PoolPlan& plan, const Shape& out, const F& f) {
  const Shape& in = plan.in;
  for (size_t i = 0; i < kBatch * out.elements(); ++i) {
    const size_t x = i % out.width * plan.stride, y = i / out.width % out.height * plan.stride;
    const size_t plane = i / (out.width * out.height);
    for (size_t dy = 0; dy < plan.height; ++dy) {
      for (size_t dx = 0; dx < plan.width; ++dx) {
        f(i, (plane * in.height + y + dy) * in.width + x + dx);
      }
    }
  }
}

// Padding of a batch must be zero.
float SumOfPadding(const Shape& shape, const float* from) {
  float sum = 0;
  for (size_t i = 0; i < kBatch * shape.stride(); ++i) sum += std::abs(from[i]);
  for (const float value : Elements(shape, from)) sum -= std::abs(value);
  return sum;
}

// Whole numbers, so that sums of them are exact and equal maxima frequent.
void MakeWhole(BlockRig& rig) {
  for (size_t i = 0; i < rig.in_size(); ++i) rig.in()[i] = std::round(2 * rig.in()[i]);
}

TEST(FusedPool, TheFirstMaximumOfAWindowHasTheGradient) {
  for (const PoolPlan& plan : Plans()) {
    const auto block = MakeMaxPool(plan);
    const Shape& out = block->out();
    BlockRig rig(*block, kBatch, 4);
    MakeWhole(rig);
    rig.Forward();
    rig.Backward();
    const std::vector<float> x = Elements(plan.in, rig.in());
    std::vector<float> most(kBatch * out.elements(), -std::numeric_limits<float>::infinity());
    std::vector<size_t> where(most.size());
    ForEachPair(plan, out, [&](size_t o, size_t i) {
      if (x[i] > most[o]) most[o] = x[i], where[o] = i;
    });
    EXPECT_EQ(Elements(out, rig.out()), most);
    const std::vector<float> d_out = Elements(out, rig.direction());
    std::vector<float> d_in(x.size());
    for (size_t o = 0; o < most.size(); ++o) d_in[where[o]] += d_out[o];
    EXPECT_EQ(Elements(plan.in, rig.d_in()), d_in);
    EXPECT_EQ(SumOfPadding(out, rig.out()), 0);
    EXPECT_NEAR(SumOfPadding(plan.in, rig.d_in()), 0, 1e-3);
  }
}

TEST(FusedPool, AMeanSharesItsGradient) {
  for (const PoolPlan& plan : Plans()) {
    const auto block = MakeAvgPool(plan);
    const Shape& out = block->out();
    const auto size = static_cast<float>(plan.height * plan.width);
    BlockRig rig(*block, kBatch, 4);
    MakeWhole(rig);
    rig.Forward();
    rig.Backward();
    const std::vector<float> x = Elements(plan.in, rig.in());
    const std::vector<float> d_out = Elements(out, rig.direction());
    std::vector<float> mean(kBatch * out.elements()), d_in(x.size());
    ForEachPair(plan, out, [&](size_t o, size_t i) {
      mean[o] += x[i];
      d_in[i] += d_out[o] / size;
    });
    for (float& value : mean) value /= size;
    EXPECT_EQ(Elements(out, rig.out()), mean);
    const std::vector<float> made = Elements(plan.in, rig.d_in());
    for (size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], d_in[i], 1e-5);
    EXPECT_NEAR(SumOfPadding(out, rig.out()), 0, 1e-3);
  }
}

TEST(FusedPool, ANotANumberIsNotLost) {
  const PoolPlan plan{.in = {.channels = 1, .height = 2, .width = 2}};
  const auto block = MakeMaxPool(plan);
  for (size_t i = 0; i < 4; ++i) {
    BlockRig rig(*block, 1, 1);
    rig.in()[i] = std::numeric_limits<float>::quiet_NaN();
    rig.Forward();
    EXPECT_TRUE(std::isnan(rig.out()[0])) << i;
  }
}

}  // namespace
}  // namespace macaw::training::fused
