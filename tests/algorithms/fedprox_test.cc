#include <gtest/gtest.h>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

TEST(FedProx, ReachesItsKnownFixedPointWithAllButExactSolves) {
  RoundLoop loop(Builtin("fedprox"), Q4(), {.steps = 400, .parameters = {{"mu", 1.0}}});
  ASSERT_TRUE(loop.Rounds(200).ok());
  EXPECT_LT(Distance(loop.Model(), {.392909402137, 2.071715821844}), 1e-12);
}

TEST(FedProx, WithoutAPullIsFedAvgBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RoundLoop fedprox(Builtin("fedprox"), Q4(), {.parameters = {{"mu", 0.0}}, .dtype = dtype});
    RoundLoop fedavg(Builtin("fedavg"), Q4(), {.dtype = dtype});
    ASSERT_TRUE(fedprox.Rounds(10).ok());
    ASSERT_TRUE(fedavg.Rounds(10).ok());
    EXPECT_EQ(fedprox.ModelDigest(), fedavg.ModelDigest());
  }
}

TEST(FedProx, PullsWithMuAndNotHalfOfIt) {
  // One client, two steps, η = .1, f = ½x², x₀ = 1: w₁ = .9; w₂ = .9 − .1·(.9 + μ·(.9 − 1)) = .81 +
  // .01·μ.
  using A = std::array<std::array<double, 2>, 2>;
  const std::vector<TestPopulationClient> one = {
      {std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{0, 0}), 1}};
  RoundLoop loop(Builtin("fedprox"), one,
                 {.steps = 2, .parameters = {{"mu", 3.0}}, .start = {1, 1}});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_LT(Distance(loop.Model(), {.84, .84}), 1e-15);
}

}  // namespace
}  // namespace macaw::algorithms
