// The block of a linear layer with an adapter, against a plain loop in double and against finite
// differences.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/training/fused_testing.h"
#include "training/fused/adapted_linear.h"

namespace macaw::training::fused {
namespace {

class FusedAdapted : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(OnEach, FusedAdapted, testing::ValuesIn(SupportedIsas()), IsaName);

struct Sizes {
  size_t inputs, outputs, rank, positions;
};
const std::vector<Sizes> kSizes = {{1, 1, 1, 1},    {60, 10, 4, 1}, {17, 33, 16, 1},
                                   {300, 16, 3, 1}, {5, 47, 5, 1},  {6, 20, 2, 7}};

LinearPlan PlanOf(const Sizes& sizes, bool bias, bool relu) {
  return {.in = sizes.positions == 1 ? Shape::Flat(sizes.inputs)
                                     : Shape::Sequence(sizes.positions, sizes.inputs),
          .outputs = sizes.outputs,
          .positions = sizes.positions,
          .bias = bias,
          .relu = relu};
}

std::vector<size_t> TensorsOf(const Sizes& sizes, bool bias) {
  std::vector<size_t> tensors = {sizes.inputs * sizes.outputs};
  if (bias) tensors.push_back(sizes.outputs);
  tensors.insert(tensors.end(), {sizes.rank * sizes.inputs, sizes.outputs * sizes.rank});
  return tensors;
}

std::vector<std::vector<float>> DrawTensors(const std::vector<size_t>& sizes, uint64_t seed) {
  std::vector<std::vector<float>> tensors;
  RandomStream stream({.seed = seed});
  for (const size_t size : sizes) {
    for (float& value : tensors.emplace_back(size)) value = static_cast<float>(stream.Normal());
  }
  return tensors;
}

TEST_P(FusedAdapted, AddsTheScaledProductOfLowRank) {
  for (const Sizes& sizes : kSizes) {
    for (const size_t n : {1, 5, 13}) {
      for (const bool relu : {false, true}) {
        const double scale = relu ? 0.75 : 1.0;
        const auto block =
            MakeAdaptedLinear(GetParam(), PlanOf(sizes, true, relu), sizes.rank, scale);
        const auto tensors = DrawTensors(TensorsOf(sizes, true), sizes.inputs);
        std::vector<const float*> pointers;
        for (const std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
        BlockRig rig(*block, n, 3);
        block->Pack(pointers, rig.weights());
        rig.Forward();
        const size_t in_pitch = block->in().stride() / sizes.positions;
        const size_t out_pitch = block->out().stride() / sizes.positions;
        for (size_t row = 0; row < n * sizes.positions; ++row) {
          const float* const x = rig.in() + row * in_pitch;
          std::vector<double> inner(sizes.rank);
          for (size_t k = 0; k < sizes.rank; ++k) {
            for (size_t i = 0; i < sizes.inputs; ++i)
              inner[k] += double{tensors[2][k * sizes.inputs + i]} * x[i];
          }
          for (size_t o = 0; o < out_pitch; ++o) {
            double sum = 0, size = 1;
            const auto add = [&](double term) {
              sum += term;
              size += std::abs(term);
            };
            if (o < sizes.outputs) {
              add(tensors[1][o]);
              for (size_t i = 0; i < sizes.inputs; ++i)
                add(double{tensors[0][o * sizes.inputs + i]} * x[i]);
              for (size_t k = 0; k < sizes.rank; ++k)
                add(scale * tensors[3][o * sizes.rank + k] * inner[k]);
            }
            if (relu) sum = std::max(sum, 0.0);
            ASSERT_NEAR(rig.out()[row * out_pitch + o], sum, 2e-6 * size)
                << sizes.inputs << " to " << sizes.outputs << ", rank " << sizes.rank << ": row "
                << row << ", output " << o;
          }
        }
        auto back = tensors;
        std::vector<float*> places;
        for (std::vector<float>& tensor : back) {
          std::ranges::fill(tensor, 0.0f);
          places.push_back(tensor.data());
        }
        block->Unpack(rig.weights(), places);
        EXPECT_EQ(back, tensors);
      }
    }
  }
}

TEST_P(FusedAdapted, Differentiates) {
  for (const Sizes& sizes : {Sizes{19, 21, 3, 1}, Sizes{5, 9, 2, 4}}) {
    for (const bool bias : {false, true}) {
      const auto block =
          MakeAdaptedLinear(GetParam(), PlanOf(sizes, bias, /*relu=*/false), sizes.rank, 1.75);
      BlockRig rig(*block, 6, 5);
      rig.DrawWeights(TensorsOf(sizes, bias), 6);
      rig.Forward();
      rig.Backward();
      ExpectDerivatives(rig, rig.weights(), rig.gradient(), rig.weights_size(), 0.04);
      ExpectDerivatives(rig, rig.in(), rig.d_in(), rig.in_size(), 0.04);
    }
  }
}

// Behind a ReLU the gradients are those without one, of the outputs that it lets pass.
TEST_P(FusedAdapted, DifferentiatesBehindARelu) {
  for (const Sizes& sizes : {Sizes{19, 21, 3, 1}, Sizes{5, 9, 2, 4}}) {
    const auto clipped = MakeAdaptedLinear(GetParam(), PlanOf(sizes, true, true), sizes.rank, 0.5);
    const auto plain = MakeAdaptedLinear(GetParam(), PlanOf(sizes, true, false), sizes.rank, 0.5);
    BlockRig with(*clipped, 6, 5), without(*plain, 6, 5);
    for (BlockRig* rig : {&with, &without}) {
      rig->DrawWeights(TensorsOf(sizes, true), 6);
      rig->Forward();
    }
    size_t passed = 0;
    for (size_t i = 0; i < with.out_size(); ++i) {
      passed += with.out()[i] > 0 ? 1 : 0;
      if (!(with.out()[i] > 0)) without.direction()[i] = 0;
    }
    EXPECT_GT(passed, 20u);
    with.Backward();
    without.Backward();
    for (size_t i = 0; i < with.in_size(); ++i) ASSERT_EQ(with.d_in()[i], without.d_in()[i]);
    for (size_t i = 0; i < with.weights_size(); ++i)
      ASSERT_EQ(with.gradient()[i], without.gradient()[i]);
  }
}

// A gradient that is not wanted is not computed, and the others have the same bits without it.
TEST_P(FusedAdapted, LeavesOutGradientsThatAreNotWanted) {
  const Sizes sizes = {19, 21, 3, 1};
  const auto block = MakeAdaptedLinear(GetParam(), PlanOf(sizes, true, true), sizes.rank, 0.5);
  const std::vector<PackedTensor> tensors = block->tensors();
  ASSERT_EQ(tensors.size(), 4u);
  BlockRig all(*block, 6, 5);
  all.DrawWeights(TensorsOf(sizes, true), 6);
  all.Forward();
  all.Backward();
  for (uint32_t wanted = 0; wanted < 16; ++wanted) {
    BlockRig some(*block, 6, 5, /*garbage=*/55.0f);
    some.DrawWeights(TensorsOf(sizes, true), 6);
    some.Forward();
    some.Backward(wanted);
    for (size_t i = 0; i < all.in_size(); ++i) ASSERT_EQ(some.d_in()[i], all.d_in()[i]);
    for (size_t t = 0; t < tensors.size(); ++t) {
      // W and b are one product's.
      const bool computed = t < 2 ? (wanted & 3) != 0 : (wanted >> t & 1) != 0;
      for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].size; ++i)
        ASSERT_EQ(some.gradient()[i], computed ? all.gradient()[i] : 55.0f) << wanted << " " << t;
    }
  }
}

TEST_P(FusedAdapted, BitsDependOnTheValuesAlone) {
  const Sizes sizes = {37, 29, 5, 1};
  const auto block = MakeAdaptedLinear(GetParam(), PlanOf(sizes, true, true), sizes.rank, 0.3);
  BlockRig one(*block, 11, 5, 77.0f), other(*block, 11, 5, std::nanf(""));
  for (BlockRig* rig : {&one, &other}) {
    rig->DrawWeights(TensorsOf(sizes, true), 6);
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
  alone.DrawWeights(TensorsOf(sizes, true), 6);
  std::copy_n(one.in(), alone.in_size(), alone.in());
  alone.Forward();
  EXPECT_TRUE(same(alone.out(), one.out(), alone.out_size()));
}

}  // namespace
}  // namespace macaw::training::fused
