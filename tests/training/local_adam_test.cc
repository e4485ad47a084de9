#include "training/local_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "training/local_optimizer.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

constexpr double kGradients[] = {2, -1, 0.5, 3};

// One weight from 1 under these gradients.
std::vector<double> PathOf(const AdamRule& rule) {
  std::vector<double> path;
  double w = 1, g = 0, m = 0, s = 0;
  uint64_t step = 0;
  for (const double gradient : kGradients) {
    g = gradient;
    AdamStep<double>(
        rule, ++step, 1.0, {{0, 1}},
        {.weights = {&w, 1}, .gradient = {&g, 1}, .first = {&m, 1}, .second = {&s, 1}});
    EXPECT_EQ(g, 0);
    path.push_back(w);
  }
  return path;
}

void ExpectPath(const AdamRule& rule, const std::vector<double>& expected) {
  const std::vector<double> path = PathOf(rule);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_DOUBLE_EQ(path[i], expected[i]) << "step " << i;
}

// The formulas of torch.optim.Adam and AdamW worked out apart from this code, in double.
TEST(AdamStep, FollowsPyTorchsSequence) {
  ExpectPath({.lr = 0.1},
             {0.90000000049999995, 0.87336629670243149, 0.83932338213894264, 0.77620532109269635});
  ExpectPath({.lr = 0.05, .beta1 = 0.3, .beta2 = 0.5, .epsilon = 1e-3},
             {0.95002498750624687, 0.96089586649840253, 0.94724045715953997, 0.89938167469251795});
}

TEST(AdamStep, DecaysThroughTheGradientAndAdamWApart) {
  ExpectPath({.lr = 0.1, .weight_decay = 0.25},
             {0.90000000044444439, 0.86089530243424484, 0.81354581726481456, 0.74385237120167713});
  ExpectPath({.lr = 0.1, .weight_decay = 0.25, .decoupled = true},
             {0.87500000049999993, 0.82649129668993149, 0.77178609970919432, 0.68937338617021815});
}

// With β₁ = β₂ = 0 a step is −η·d/(|d| + ε), so d can be read off: here ε is large.
TEST(AdamStep, ClipsThenCorrectsThenDecays) {
  double w = 3, g = 8, m = 0, s = 0;
  const double anchor = 1, v = 0.25;
  AdamStep<double>({.lr = 1, .beta1 = 0, .beta2 = 0, .epsilon = 10, .weight_decay = 0.1, .mu = 0.5},
                   1, /*scale=*/0.25, {{0, 1}},
                   {.weights = {&w, 1},
                    .gradient = {&g, 1},
                    .first = {&m, 1},
                    .second = {&s, 1},
                    .anchor = {&anchor, 1},
                    .v = {&v, 1}});
  const double d = 8 * 0.25 + 0.5 * (3 - 1) + 0.25 + 0.1 * 3;
  EXPECT_DOUBLE_EQ(m, d);
  EXPECT_DOUBLE_EQ(w, 3 - d / (d + 10));
}

TEST(AdamStep, GivesEachElementItsOwnStepAndLeavesWhatIsNotInItsPieces) {
  // Long enough for every vector width, its tail, and a gap.
  constexpr size_t kSize = 61;
  std::vector<float> w(kSize, 1), g(kSize), m(kSize), s(kSize);
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < kSize; ++i) g[i] = 0.1f * static_cast<float>(i + 1) * step;
    AdamStep<float>({.lr = 0.01}, step, 1.0, {{0, 37}, {40, 61}},
                    {.weights = w, .gradient = g, .first = m, .second = s});
  }
  for (const size_t i : {size_t{0}, size_t{5}, size_t{36}, size_t{40}, size_t{60}}) {
    float w1 = 1, m1 = 0, s1 = 0;
    for (int step = 1; step <= 3; ++step) {
      float g1 = 0.1f * static_cast<float>(i + 1) * step;
      AdamStep<float>(
          {.lr = 0.01}, step, 1.0, {{0, 1}},
          {.weights = {&w1, 1}, .gradient = {&g1, 1}, .first = {&m1, 1}, .second = {&s1, 1}});
    }
    EXPECT_EQ(w[i], w1) << i;
    EXPECT_EQ(s[i], s1) << i;
  }
  for (const size_t i : {37, 38, 39}) {
    EXPECT_EQ(w[i], 1);
    EXPECT_EQ(m[i], 0);
    EXPECT_NE(g[i], 0);
  }
}

LayoutPtr OneWeight() { return ParameterLayout::Scalars("w", 1, DType::kF64); }

std::vector<double> Walk(LocalOptimizer& optimizer, const LocalConfig& local, double mu = 0) {
  optimizer.Start(local, mu);
  std::vector<double> path;
  double w = 1, g = 0, anchor = 0;
  uint64_t step = 0;
  for (const double gradient : kGradients) {
    g = gradient;
    optimizer.StepEach<double>({{.step = ++step, .pieces = {{0, 1}}}},
                               {.weights = {&w, 1}, .gradient = {&g, 1}, .anchor = {&anchor, 1}},
                               /*clipped=*/false);
    path.push_back(w);
  }
  return path;
}

TEST(LocalOptimizer, StartsEachStageWithFreshState) {
  LocalOptimizer optimizer(OneWeight());
  for (const char* name : {"sgd", "adam", "adamw"}) {
    LocalConfig local;
    local.optimizer = name;
    if (local.optimizer == "sgd") local.momentum = 0.9;
    const std::vector<double> first = Walk(optimizer, local);
    EXPECT_EQ(Walk(optimizer, local), first) << name;
    LocalOptimizer other(OneWeight());
    EXPECT_EQ(Walk(other, local), first) << name;
  }
}

LocalConfig With(const std::string& optimizer, double lr) {
  LocalConfig local;
  local.optimizer = optimizer;
  local.lr = lr;
  return local;
}

TEST(LocalOptimizer, TakesItsRuleFromTheConfiguration) {
  LocalOptimizer optimizer(OneWeight());
  LocalConfig local = With("adamw", 0.1);
  local.weight_decay = 0.25;
  EXPECT_EQ(Walk(optimizer, local), PathOf({.lr = 0.1, .weight_decay = 0.25, .decoupled = true}));
  local.optimizer = "adam";
  local.beta1 = 0.5;
  local.beta2 = 0.9;
  local.epsilon = 0.1;
  EXPECT_EQ(Walk(optimizer, local),
            PathOf({.lr = 0.1, .beta1 = 0.5, .beta2 = 0.9, .epsilon = 0.1, .weight_decay = 0.25}));
  // The clip comes first: gradients 2, −1, 0.5, 3 become 1, −1, 0.5, 1.
  LocalConfig clipped = With("sgd", 1);
  clipped.clip_norm = 1;
  EXPECT_EQ(Walk(optimizer, clipped), (std::vector<double>{0, 1, 0.5, -0.5}));
}

TEST(LocalOptimizer, KnowsFedNovasNormOfSgdOnly) {
  LocalOptimizer optimizer(OneWeight());
  Walk(optimizer, With("sgd", 0.1), /*mu=*/0.5);
  StepNorm norm({.lr = 0.1, .mu = 0.5});
  for (int i = 0; i < 4; ++i) norm.Step();
  EXPECT_EQ(optimizer.a_norm1(), norm.value());
  Walk(optimizer, With("adam", 0.1));
  EXPECT_TRUE(std::isnan(optimizer.a_norm1()));
}

TEST(LocalOptimizer, RefusesWhatDoesNotFitByItsKey) {
  const auto message = [](const std::string& optimizer, void (*change)(LocalConfig&)) {
    LocalConfig local = With(optimizer, 0.1);
    change(local);
    return std::string(LocalOptimizer::Check(local).message());
  };
  const auto nothing = [](LocalConfig&) {};
  EXPECT_THAT(message("lamb", nothing), HasSubstr("\"sgd\", \"adam\" or \"adamw\", got \"lamb\""));
  EXPECT_THAT(message("adam", [](LocalConfig& l) { l.momentum = 0.9; }),
              HasSubstr("has local.beta1"));
  EXPECT_THAT(message("adamw", [](LocalConfig& l) { l.nesterov = true; }),
              HasSubstr("local.nesterov"));
  EXPECT_THAT(message("adam", [](LocalConfig& l) { l.beta2 = 1; }), HasSubstr("got 0.9, 1 and"));
  EXPECT_THAT(message("adam", [](LocalConfig& l) { l.epsilon = 0; }), HasSubstr("local.epsilon"));
  EXPECT_EQ(message("adamw", [](LocalConfig& l) { l.weight_decay = 0.1; }), "");
}

}  // namespace
}  // namespace macaw::training
