#include "training/local_sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace macaw::training {
namespace {

using testing::ElementsAre;
using testing::Pair;

// One weight through `rule`, for a quadratic f(w) = a/2·(w − b)², whose gradient is a·(w − b).
struct Scalar {
  double w = 0, g = 0, m = 0, anchor = 0, v = 0;

  void Step(const SgdRule& rule, double gradient, bool use_v = false) {
    g = gradient;
    const Pieces all = {{0, 1}};
    const double scale = ClipFactor(rule.clip_norm, NormOf<double>({&g, 1}, all));
    SgdStep<double>(rule, scale, all,
                    {.weights = {&w, 1},
                     .gradient = {&g, 1},
                     .momentum = {&m, 1},
                     .anchor = {&anchor, 1},
                     .v = use_v ? std::span<const double>(&v, 1) : std::span<const double>()});
  }
};

TEST(SgdStep, GoesDownTheGradientAndClearsIt) {
  Scalar x{.w = 1};
  x.Step({.lr = 0.1}, 2);
  EXPECT_DOUBLE_EQ(x.w, 0.8);
  EXPECT_EQ(x.g, 0);
}

TEST(SgdStep, KeepsMomentumAsPyTorchDoes) {
  Scalar heavy{.w = 1}, nesterov{.w = 1};
  // m: 2, then 0.5·2 + 3 = 4. Heavy ball moves by m, Nesterov by g + 0.5·m: 3, then 5.
  for (const double gradient : {2.0, 3.0}) {
    heavy.Step({.lr = 0.1, .momentum = 0.5}, gradient);
    nesterov.Step({.lr = 0.1, .momentum = 0.5, .nesterov = true}, gradient);
  }
  EXPECT_DOUBLE_EQ(heavy.w, 1 - 0.2 - 0.4);
  EXPECT_DOUBLE_EQ(nesterov.w, 1 - 0.3 - 0.5);
}

TEST(SgdStep, ClipsThenCorrectsThenDecays) {
  // Gradient 8 is clipped to 2; + μ(w − a) = 0.5·(3 − 1) = 1; + v = 0.25; + decay 0.1·3 = 0.3.
  Scalar x{.w = 3, .anchor = 1, .v = 0.25};
  x.Step({.lr = 1, .weight_decay = 0.1, .clip_norm = 2, .mu = 0.5}, 8, true);
  EXPECT_DOUBLE_EQ(x.w, 3 - (2 + 1 + 0.25 + 0.3));
}

TEST(SgdStep, DoesNotClipAShorterGradient) {
  Scalar x{.w = 0};
  x.Step({.lr = 1, .clip_norm = 2}, 1.5);
  EXPECT_EQ(x.w, -1.5);
}

TEST(SgdStep, LeavesWhatIsNotInItsPieces) {
  std::vector<float> w(6, 1), g = {1, 1, 0, 0, 1, 1}, m(6);
  const Pieces pieces = {{0, 2}, {4, 5}};
  SgdStep<float>({.lr = 0.5f, .momentum = 0.9}, 1, pieces,
                 {.weights = w, .gradient = g, .momentum = m, .anchor = {}, .v = {}});
  EXPECT_THAT(w, ElementsAre(0.5f, 0.5f, 1, 1, 0.5f, 1));
  EXPECT_THAT(m, ElementsAre(1, 1, 0, 0, 1, 0));
}

TEST(NormOf, SumsThePiecesInDouble) {
  std::vector<float> g(37, 1e20f);  // squares overflow a float
  EXPECT_NEAR(NormOf<float>(g, {{0, 37}}) / (1e20 * std::sqrt(37.0)), 1, 1e-7);
  EXPECT_NEAR(NormOf<float>(g, {{1, 3}, {10, 12}}) / 2e20, 1, 1e-7);
}

TEST(TrainablePieces, JoinsNeighboursAndSkipsTheFrozen) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "a", .shape = {3}},
                              {.name = "b", .shape = {20}},
                              {.name = "c", .shape = {1}},
                              {.name = "running", .shape = {2}, .group = Group::kBuffer}},
                             DType::kF64);
  EXPECT_THAT(TrainablePieces(*layout, nullptr), ElementsAre(Pair(0, 33)));
  const std::vector<bool> ends = {true, false, true, true};
  EXPECT_THAT(TrainablePieces(*layout, &ends), ElementsAre(Pair(0, 3), Pair(32, 33)));
  const std::vector<bool> none = {false, false, false, true};
  EXPECT_TRUE(TrainablePieces(*layout, &none).empty());
}

double StepNormAfter(int steps, const SgdRule& rule) {
  StepNorm norm(rule);
  for (int i = 0; i < steps; ++i) norm.Step();
  return norm.value();
}

// The oracles of Wang et al. 2020, section 4, to every printed digit.
TEST(StepNorm, HitsFedNovasNumbers) {
  EXPECT_DOUBLE_EQ(StepNormAfter(7, {.lr = 0.1}), 7);
  EXPECT_NEAR(StepNormAfter(7, {.lr = 0.1, .momentum = 0.9}), 23.046721, 1e-12);
  EXPECT_NEAR(StepNormAfter(50, {.lr = 0.1, .momentum = 0.9}), 410.463839768659, 5e-13 * 410);
  EXPECT_NEAR(StepNormAfter(9, {.lr = 0.1, .mu = 0.5}), 7.395011805508, 1e-12);
  EXPECT_NEAR(StepNormAfter(9, {.lr = 0.1, .momentum = 0.9, .mu = 0.5}), 24.018440121133, 1e-12);
}

TEST(StepNorm, IsMinusTheDisplacementOfTheSameOptimizerOnAUnitGradient) {
  for (const bool nesterov : {false, true}) {
    const SgdRule rule{.lr = 0.1, .momentum = 0.8, .nesterov = nesterov, .mu = 0.3};
    Scalar x;
    for (int i = 0; i < 11; ++i) x.Step(rule, 1);
    EXPECT_NEAR(StepNormAfter(11, rule), -x.w / rule.lr, 1e-12);
  }
}

TEST(StepNorm, IgnoresDecayAndClip) {
  EXPECT_DOUBLE_EQ(StepNormAfter(5, {.lr = 0.1, .weight_decay = 0.5, .clip_norm = 0.01}), 5);
}

}  // namespace
}  // namespace macaw::training
