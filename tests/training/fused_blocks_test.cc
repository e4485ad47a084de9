// Each dense block against a plain loop in double, and against finite differences.
#include <gmock/gmock.h>

#include <limits>
#include <utility>

#include "tests/training/fused_testing.h"
#include "training/fused/elementwise.h"
#include "training/fused/linear.h"

namespace macaw::training::fused {
namespace {

#if defined(__aarch64__)
constexpr bool kArm = true;
#else
constexpr bool kArm = false;
#endif

class FusedBlocks : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(OnEach, FusedBlocks, testing::ValuesIn(SupportedIsas()), IsaName);

TEST_P(FusedBlocks, LinearIsTheProductForAnySizes) {
  for (const size_t n : {1, 2, 5, 7, 13, 20, 33}) {
    for (const auto& [inputs, outputs] :
         std::vector<std::pair<size_t, size_t>>{{1, 1}, {60, 10}, {17, 33}, {300, 16}, {5, 47}}) {
      const auto block = MakeLinear(GetParam(), {.in = Shape::Flat(inputs), .outputs = outputs});
      RandomStream stream({.seed = inputs});
      std::vector<float> weight(inputs * outputs), bias(outputs);
      for (float& w : weight) w = static_cast<float>(stream.Normal());
      for (float& b : bias) b = static_cast<float>(stream.Normal());
      BlockRig rig(*block, n, 3);
      const std::vector<const float*> tensors = {weight.data(), bias.data()};
      block->Pack(tensors, rig.weights());
      rig.Forward();
      const size_t stride = block->out().stride(), in_stride = block->in().stride();
      for (size_t r = 0; r < n; ++r) {
        for (size_t o = 0; o < stride; ++o) {
          double sum = 0, size = 1;
          if (o < outputs) {
            sum = bias[o];
            for (size_t k = 0; k < inputs; ++k) {
              const double term = double{weight[o * inputs + k]} * rig.in()[r * in_stride + k];
              sum += term;
              size += std::abs(term);
            }
          }
          ASSERT_NEAR(rig.out()[r * stride + o], sum, 1e-6 * size)
              << n << " x " << inputs << " to " << outputs << ": row " << r << " output " << o;
        }
      }
      std::vector<float> weight_back(weight.size()), bias_back(bias.size());
      const std::vector<float*> back = {weight_back.data(), bias_back.data()};
      block->Unpack(rig.weights(), back);
      EXPECT_EQ(weight_back, weight);
      EXPECT_EQ(bias_back, bias);
    }
  }
}

TEST_P(FusedBlocks, LinearDifferentiates) {
  for (const bool relu : {false, true}) {
    const LinearPlan plan{.in = Shape::Flat(19), .outputs = 21, .bias = !relu, .relu = relu};
    const auto block = MakeLinear(GetParam(), plan);
    BlockRig rig(*block, 9, 5);
    plan.bias ? rig.DrawWeights({19 * 21, 21}, 6) : rig.DrawWeights({19 * 21}, 6);
    rig.Forward();
    rig.Backward();
    // At a ReLU that changes sign within the finite difference, the derivative is slightly off.
    const double tolerance = relu ? 0.15 : 0.02;
    ExpectDerivatives(rig, rig.weights(), rig.gradient(), rig.weights_size(), tolerance);
    ExpectDerivatives(rig, rig.in(), rig.d_in(), rig.in_size(), tolerance);
  }
}

TEST_P(FusedBlocks, LinearTakesInterleavedChannels) {
  const Shape planar{.channels = 3, .height = 4, .width = 5};
  Shape interleaved = planar;
  interleaved.order = Shape::Order::kInterleaved;
  interleaved.pitch = 8;
  const auto a = MakeLinear(GetParam(), {.in = planar, .outputs = 6});
  const auto b = MakeLinear(GetParam(), {.in = interleaved, .outputs = 6});
  BlockRig one(*a, 4, 9), other(*b, 4, 9);
  one.DrawWeights({60 * 6, 6}, 2);
  other.DrawWeights({60 * 6, 6}, 2);
  one.Forward();
  one.Backward();
  other.Forward();
  other.Backward();
  for (size_t r = 0; r < 4; ++r) {
    for (size_t o = 0; o < 6; ++o) {
      EXPECT_NEAR(other.out()[r * 16 + o], one.out()[r * 16 + o], 1e-4);
    }
    for (size_t i = 0; i < 60; ++i) {
      EXPECT_EQ(other.d_in()[r * interleaved.stride() + interleaved.At(i)],
                one.d_in()[r * planar.stride() + i]);
    }
  }
  // Gradients have the layout of the weights: unpacked, they are the same tensor.
  std::vector<float> left(360), right(360), bias(6);
  a->Unpack(one.gradient(), std::vector<float*>{left.data(), bias.data()});
  b->Unpack(other.gradient(), std::vector<float*>{right.data(), bias.data()});
  EXPECT_EQ(left, right);
}

TEST_P(FusedBlocks, ElementwiseFunctionsAndTheirDerivatives) {
  const Shape shape{
      .channels = 3, .height = 2, .width = 3, .order = Shape::Order::kInterleaved, .pitch = 5};
  const auto value = [](Function function, double x) {
    if (function == Function::kRelu) return std::max(x, 0.0);
    return function == Function::kTanh ? std::tanh(x) : 1 / (1 + std::exp(-x));
  };
  for (const Function function : {Function::kRelu, Function::kTanh, Function::kSigmoid}) {
    const auto block = MakeElementwise(GetParam(), function, shape);
    BlockRig rig(*block, 3, 4);
    rig.in()[0] = 200;  // where exponentials overflow
    rig.in()[1] = -200;
    rig.Forward();
    for (size_t r = 0; r < 3; ++r) {
      std::vector<float> expected(shape.stride());
      for (size_t i = 0; i < shape.elements(); ++i) {
        const size_t at = shape.At(i);
        expected[at] = static_cast<float>(value(function, rig.in()[r * shape.stride() + at]));
      }
      for (size_t i = 0; i < shape.stride(); ++i) {
        ASSERT_NEAR(rig.out()[r * shape.stride() + i], expected[i], 1e-6 * (1 + expected[i]));
      }
    }
    rig.Backward();
    ExpectDerivatives(rig, rig.in(), rig.d_in(), rig.in_size(), 1e-2);
  }
}

// Of one number at a time, in each place of a vector, forth and back.
TEST_P(FusedBlocks, KeepANotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t inputs : {19, 300}) {  // 300: sums in two pieces
    for (const bool relu : {false, true}) {
      const LinearPlan plan{.in = Shape::Flat(inputs), .outputs = 21, .relu = relu};
      const auto block = MakeLinear(GetParam(), plan);
      BlockRig rig(*block, 5, 3);
      rig.DrawWeights({inputs * 21, 21}, 4);
      for (size_t i = 0; i < inputs; ++i) {
        float& broken = rig.in()[2 * block->in().stride() + i];
        const float before = std::exchange(broken, nan);
        rig.Forward();
        for (size_t at = 0; at < rig.out_size(); ++at) {
          if (at % 32 >= 21) continue;  // padding
          ASSERT_EQ(std::isnan(rig.out()[at]), at / 32 == 2) << "output " << at << " for " << i;
        }
        broken = before;
      }
      rig.Forward();
      rig.direction()[21 - 1] = nan;
      rig.out()[21 - 1] = nan;  // LibTorch's ReLU lets the gradient of a NaN pass
      rig.Backward();
      EXPECT_TRUE(std::isnan(rig.d_in()[0])) << relu;
    }
  }
  const Shape shape = Shape::Flat(37);
  for (const Function function : {Function::kRelu, Function::kTanh, Function::kSigmoid}) {
    const auto block = MakeElementwise(GetParam(), function, shape);
    for (size_t i = 0; i < 37; ++i) {
      BlockRig rig(*block, 1, 4);
      rig.in()[i] = i % 2 == 0 ? nan : -nan;
      rig.Forward();
      for (size_t o = 0; o < rig.out_size(); ++o)
        ASSERT_EQ(std::isnan(rig.out()[o]), o == i) << int(function) << ": " << o << " for " << i;
      rig.Backward();
      EXPECT_EQ(std::isnan(rig.d_in()[i]), function != Function::kRelu) << int(function);
    }
  }
}

// Part of the bits of models: a sum that a floor of 0 does not raise stays as it is.
TEST_P(FusedBlocks, GiveZerosTheirSigns) {
  const auto sign = [](float zero) {
    EXPECT_EQ(zero, 0.0f);
    return std::signbit(zero);
  };
  const auto relu = MakeElementwise(GetParam(), Function::kRelu, Shape::Flat(16));
  BlockRig alone(*relu, 1, 4);
  std::fill_n(alone.in(), 16, -0.0f);
  alone.Forward();
  for (size_t i = 0; i < 16; ++i) EXPECT_FALSE(sign(alone.out()[i])) << i;
  for (const bool clip : {false, true}) {
    const auto linear = MakeLinear(GetParam(), {.in = Shape::Flat(1), .outputs = 16, .relu = clip});
    BlockRig rig(*linear, 1, 4);
    const std::vector<float> weights(16, 1.0f), bias(16, -0.0f);
    linear->Pack(std::vector<const float*>{weights.data(), bias.data()}, rig.weights());
    rig.in()[0] = -0.0f;
    rig.Forward();
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(sign(rig.out()[i]), !clip || !kArm) << i;
  }
}

TEST(FusedDropout, DrawsOneWordAnElementInLayerOrder) {
  const Shape shape{
      .channels = 2, .height = 2, .width = 3, .order = Shape::Order::kInterleaved, .pitch = 4};
  const auto block = MakeDropout(0.25, shape);
  BlockRig rig(*block, 5, 8);
  RandomStream stream({.seed = 1}), same({.seed = 1});
  rig.Forward(&stream);
  rig.Backward();
  size_t dropped = 0;
  for (size_t r = 0; r < 5; ++r) {
    for (size_t i = 0; i < shape.elements(); ++i) {
      const bool keep = same.NextU32() >= (1u << 30);
      const size_t at = r * shape.stride() + shape.At(i);
      dropped += keep ? 0 : 1;
      EXPECT_FLOAT_EQ(rig.out()[at], keep ? rig.in()[at] / 0.75f : 0.0f);
    }
  }
  EXPECT_GT(dropped, 5u);
  EXPECT_EQ(stream.NextU32(), same.NextU32());
  rig.Forward();
  EXPECT_EQ(std::vector<float>(rig.in(), rig.in() + rig.in_size()),
            std::vector<float>(rig.out(), rig.out() + rig.out_size()));
}

// Neither what the buffers held before nor the other examples of the batch may matter.
TEST_P(FusedBlocks, BitsDependOnTheValuesAlone) {
  const auto block =
      MakeLinear(GetParam(), {.in = Shape::Flat(37), .outputs = 29, .bias = true, .relu = true});
  BlockRig one(*block, 11, 5, 77.0f), other(*block, 11, 5, std::nanf(""));
  for (BlockRig* rig : {&one, &other}) {
    rig->DrawWeights({37 * 29, 29}, 6);
    rig->Forward();
    rig->Backward();
  }
  const auto same = [](const float* a, const float* b, size_t count) {
    return std::memcmp(a, b, count * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(one.out(), other.out(), one.out_size()));
  EXPECT_TRUE(same(one.d_in(), other.d_in(), one.in_size()));
  EXPECT_TRUE(same(one.gradient(), other.gradient(), one.weights_size()));

  BlockRig alone(*block, 1, 5);
  alone.DrawWeights({37 * 29, 29}, 6);
  std::copy_n(one.in(), alone.in_size(), alone.in());
  alone.Forward();
  EXPECT_TRUE(same(alone.out(), one.out(), alone.out_size()));
}

}  // namespace
}  // namespace macaw::training::fused
