// Every number of a local step against a few lines of arithmetic in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/testing.h"

namespace macaw::training {
namespace {

using Vec = std::vector<double>;

struct TrainedOnNumbers {
  HandLine line = Line();
  models::ModelSpec spec = line.Spec();
  Examples examples = line.Stored();
  std::unique_ptr<LocalTrainer> trainer = TrainerOf(spec, TaskKind::kRegression);
  FlatVector x = PointOf(spec, {0.5, -0.25, 0.125});
  const Vec start = {0.5, -0.25, 0.125};

  StageOutcome Run(Stage stage) {
    LocalPlan plan;
    plan.stages.push_back(std::move(stage));
    return MustRun(*trainer, plan, TaskOf(examples.Targets()))[0];
  }
};

TEST(EagerStep, OfLinearRegressionIsTheHandGradient) {
  TrainedOnNumbers t;
  const StageOutcome outcome = t.Run(StageFrom(View(t.x), 0.1));
  const Vec g = t.line.Gradient(t.start);
  ExpectPoint(outcome.end, {0.5 - 0.1 * g[0], -0.25 - 0.1 * g[1], 0.125 - 0.1 * g[2]});
  EXPECT_EQ(outcome.steps, 1u);
  EXPECT_EQ(outcome.examples, 5u);
  EXPECT_DOUBLE_EQ(outcome.rate_sum, 0.1);
  EXPECT_DOUBLE_EQ(outcome.a_norm1, 1);
  EXPECT_EQ(outcome.sums[0], 5);
  EXPECT_NEAR(outcome.sums[1] / 5, t.line.Loss(t.start), 1e-14);
}

TEST(EagerStep, TakesBatchesInOrderAndAShortLastOne) {
  TrainedOnNumbers t;
  Stage stage = StageFrom(View(t.x), 0.05);
  stage.local.batch_size = 2;
  stage.local.epochs = 2;
  const StageOutcome outcome = t.Run(stage);
  Vec w = t.start;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 4), std::pair(4, 5)}) {
      const Vec g = t.line.Gradient(w, begin, end);
      for (int k = 0; k < 3; ++k) w[k] -= 0.05 * g[k];
    }
  }
  ExpectPoint(outcome.end, w);
  EXPECT_EQ(outcome.steps, 6u);
  EXPECT_EQ(outcome.examples, 10u);
}

TEST(EagerStep, ClipsCorrectsDecaysAndKeepsMomentumInThatOrder) {
  for (const bool nesterov : {false, true})
    for (const bool clips_corrected : {false, true}) {
      TrainedOnNumbers t;
      const Vec anchor = {0.1, 0.2, -0.3}, v = {0.01, -0.02, 0.03};
      const FlatVector a = PointOf(t.spec, anchor), constant = PointOf(t.spec, v);
      Stage stage = StageFrom(View(t.x), 0.1);
      stage.local.epochs = 4;
      stage.local.momentum = 0.9;
      stage.local.nesterov = nesterov;
      stage.local.weight_decay = 0.01;
      stage.local.clip_norm = 1.5;
      stage.local.clip = clips_corrected ? "corrected" : "gradient";
      stage.correction = {.mu = 0.5, .anchor = View(a), .v = {{.point = View(constant)}}};
      const StageOutcome outcome = t.Run(stage);

      Vec w = t.start, m(3);
      bool clipped = false, free = false;
      for (int step = 0; step < 4; ++step) {
        Vec g = t.line.Gradient(w), correction(3);
        for (int k = 0; k < 3; ++k) {
          correction[k] = 0.5 * (w[k] - anchor[k]) + v[k];
          if (clips_corrected) g[k] += std::exchange(correction[k], 0.0);
        }
        const double norm = std::sqrt(g[0] * g[0] + g[1] * g[1] + g[2] * g[2]);
        (norm > 1.5 ? clipped : free) = true;
        for (int k = 0; k < 3; ++k) {
          double d = g[k] * std::min(1.0, 1.5 / norm) + correction[k] + 0.01 * w[k];
          m[k] = 0.9 * m[k] + d;
          w[k] -= 0.1 * (nesterov ? d + 0.9 * m[k] : m[k]);
        }
      }
      EXPECT_TRUE(clipped);
      ExpectPoint(outcome.end, w);
      EXPECT_DOUBLE_EQ(outcome.rate_sum, 0.4);
    }
}

TEST(EagerStep, PullsTowardsItsStartWhenNoAnchorIsNamed) {
  TrainedOnNumbers t;
  Stage stage = StageFrom(View(t.x), 0.1);
  stage.local.epochs = 3;
  stage.correction.mu = 2;
  const StageOutcome outcome = t.Run(stage);
  Vec w = t.start;
  for (int step = 0; step < 3; ++step) {
    const Vec g = t.line.Gradient(w);
    for (int k = 0; k < 3; ++k) w[k] -= 0.1 * (g[k] + 2 * (w[k] - t.start[k]));
  }
  ExpectPoint(outcome.end, w);
}

TEST(EagerStep, StartsMomentumAfreshEachRun) {
  TrainedOnNumbers t;
  Stage stage = StageFrom(View(t.x), 0.1);
  stage.local.epochs = 3;
  stage.local.momentum = 0.9;
  const Vec first = TensorOf(t.Run(stage).end, 0);
  EXPECT_EQ(TensorOf(t.Run(stage).end, 0), first);
}

// ‖a‖₁ of Wang et al. 2020 from real local runs, through epochs and steps alike.
TEST(EagerStep, ReportsFedNovasNorm) {
  TrainedOnNumbers t;
  Stage stage = StageFrom(View(t.x), 0.1);
  stage.local.epochs = 7;
  stage.local.momentum = 0.9;
  EXPECT_NEAR(t.Run(stage).a_norm1, 23.046721, 1e-12);
  stage.local.steps = 9;
  stage.correction.mu = 0.5;
  EXPECT_NEAR(t.Run(stage).a_norm1, 24.018440121133, 1e-12);
  stage.local.momentum = 0;
  EXPECT_NEAR(t.Run(stage).a_norm1, 7.395011805508, 1e-12);
}

TEST(EagerEvaluation, SumsRowsInAnyBatches) {
  TrainedOnNumbers t;
  const double loss = t.line.Loss(t.start) * 5;
  for (const uint32_t batch : {1u, 2u, 5u, 100u}) {
    const auto sums = t.trainer->Evaluate(View(t.x), t.examples.Targets(), 0, 5, batch);
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ((*sums)[0], 5);
    EXPECT_NEAR((*sums)[1], loss, 1e-13);
  }
  const auto part = t.trainer->Evaluate(View(t.x), t.examples.Targets(), 2, 4, 1);
  const auto rest = t.trainer->Evaluate(View(t.x), t.examples.Targets(), 0, 2, 1);
  const auto last = t.trainer->Evaluate(View(t.x), t.examples.Targets(), 4, 5, 1);
  EXPECT_NEAR((*part)[1] + (*rest)[1] + (*last)[1], loss, 1e-13);
  EXPECT_EQ(t.trainer->Evaluate(View(t.x), t.examples.Targets(), 3, 3, 1)->at(0), 0);
}

TEST(EagerEvaluation, LeavesTheOutcomeOfTheLastRunAlone) {
  TrainedOnNumbers t;
  const StageOutcome outcome = t.Run(StageFrom(View(t.x), 0.1));
  const Vec before = TensorOf(outcome.end, 0);
  ASSERT_TRUE(t.trainer->Evaluate(View(t.x), t.examples.Targets(), 0, 5, 5).ok());
  EXPECT_EQ(TensorOf(outcome.end, 0), before);
}

}  // namespace
}  // namespace macaw::training
