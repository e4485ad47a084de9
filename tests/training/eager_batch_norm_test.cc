// Batch norm through whole stages: which statistics move, when, and their effect in evaluation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/network.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

// Tensors: batchnorm's weight and bias, linear's weight and bias, running mean, running variance.
enum Entry : size_t { kMean = 4, kVariance = 5 };

models::ModelSpec Spec(const std::string& buffers = "mean") {
  ModelConfig config;
  config.name = "layers";
  config.layers = {"batchnorm", "linear 3"};
  config.input_shape = {2};
  config.classes = 3;
  config.buffers = buffers;
  return *models::BuildSpec(config, DType::kF64);
}

struct Trained {
  explicit Trained(models::ModelSpec of, size_t rows = 9)
      : spec(std::move(of)), examples(RandomExamples(rows, 2, 3, 4)) {}

  models::ModelSpec spec;
  Examples examples;
  std::unique_ptr<LocalTrainer> trainer = TrainerOf(spec, TaskKind::kClassification);
  FlatVector x = models::InitialModel(spec, 1);
  ClientTask task = TaskOf(examples.Classes());

  double Feature(uint64_t row, size_t k) const {
    float value;
    std::memcpy(&value, examples.Classes().block.features + (2 * row + k) * sizeof(value),
                sizeof(value));
    return value;
  }
};

Stage TrainStage(const FlatVector& x, uint32_t batch_size) {
  Stage stage = StageFrom(View(x), 0.1);
  stage.local.batch_size = batch_size;
  return stage;
}

TEST(EagerBatchNorm, MovesItsStatisticsByATenthOfEachBatchAndJoinsASingleRow) {
  Trained t(Spec());
  LocalPlan plan;
  plan.stages = {TrainStage(t.x, 4)};  // 9 rows: 4 and 5
  const auto outcome = MustRun(*t.trainer, plan, t.task)[0];
  EXPECT_EQ(outcome.steps, 2u);
  EXPECT_EQ(outcome.examples, 9u);
  for (size_t k = 0; k < 2; ++k) {
    double mean = 0, variance = 1;
    for (const auto& [begin, end] : {std::pair(0, 4), std::pair(4, 9)}) {
      const double n = end - begin;
      double sum = 0, squares = 0;
      for (int row = begin; row < end; ++row) sum += t.Feature(row, k);
      for (int row = begin; row < end; ++row) squares += std::pow(t.Feature(row, k) - sum / n, 2);
      mean = 0.9 * mean + 0.1 * sum / n;
      variance = 0.9 * variance + 0.1 * squares / (n - 1);
    }
    EXPECT_NEAR(TensorOf(outcome.end, kMean)[k], mean, 1e-14);
    EXPECT_NEAR(TensorOf(outcome.end, kVariance)[k], variance, 1e-14);
  }
}

TEST(EagerBatchNorm, LeavesItsStatisticsAloneInGradientAndLossStages) {
  Trained t(Spec());
  LocalPlan plan;
  plan.stages = {StageFrom(View(t.x), 0), StageFrom(View(t.x), 0)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[1].kind = StageKind::kLoss;
  const Digest before = DigestOfValues(t.x.view());
  const auto outcomes = MustRun(*t.trainer, plan, t.task);
  EXPECT_EQ(DigestOfValues(t.x.view()), before);
  // The gradient of buffers is zero: they are not trained.
  for (const size_t entry : {kMean, kVariance}) {
    EXPECT_EQ(TensorOf(outcomes[0].end, entry), (std::vector<double>{0, 0}));
  }
}

TEST(EagerBatchNorm, KeepsStatisticsThatAreFrozenOrTheServers) {
  Trained t(Spec());
  LocalPlan plan;
  plan.stages = {TrainStage(t.x, 3)};
  plan.stages[0].trainable = std::make_shared<const std::vector<bool>>(
      std::vector<bool>{true, true, true, true, false, true});
  const auto frozen = MustRun(*t.trainer, plan, t.task)[0];
  EXPECT_EQ(TensorOf(frozen.end, kMean), (std::vector<double>{0, 0}));
  EXPECT_NE(TensorOf(frozen.end, kVariance), (std::vector<double>{1, 1}));

  Trained server(Spec("server"));
  plan.stages = {TrainStage(server.x, 3)};
  const auto outcome = MustRun(*server.trainer, plan, server.task)[0];
  EXPECT_EQ(TensorOf(outcome.end, kMean), (std::vector<double>{0, 0}));
  EXPECT_EQ(TensorOf(outcome.end, kVariance), (std::vector<double>{1, 1}));
  EXPECT_NE(TensorOf(outcome.end, 0), TensorOf(View(server.x), 0));
}

// One row has no variance: the running statistics are used, as in evaluation, and do not change.
TEST(EagerBatchNorm, TakesTheRunningStatisticsForABatchOfOneRow) {
  for (const auto& [rows, batch] : {std::pair<size_t, uint32_t>(1, 4), {3, 1}}) {
    Trained t(Spec(), rows);
    LocalPlan plan;
    plan.stages = {TrainStage(t.x, batch)};
    const auto outcome = MustRun(*t.trainer, plan, t.task)[0];
    EXPECT_EQ(outcome.steps, rows);
    EXPECT_EQ(TensorOf(outcome.end, kMean), (std::vector<double>{0, 0}));
    EXPECT_EQ(TensorOf(outcome.end, kVariance), (std::vector<double>{1, 1}));
    // The linear layer behind it learns from what the norm let through.
    EXPECT_NE(TensorOf(outcome.end, 2), TensorOf(View(t.x), 2));
    for (const double value : outcome.end.As<double>()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(EagerBatchNorm, ASingleRowAtTheEndOfAGradientStageCounts) {
  // 129 rows make a pass of 128 and one of a single row. Here the row's share of the gradient is
  // what the running statistics give: that of a stage over this row alone.
  Trained all(Spec(), 129);
  LocalPlan plan;
  plan.stages = {StageFrom(View(all.x), 0)};
  plan.stages[0].kind = StageKind::kGradient;
  const auto over = [&](uint64_t first, uint64_t count) {
    std::vector<uint32_t> index(count);
    std::iota(index.begin(), index.end(), static_cast<uint32_t>(first));
    ClientTask task = all.task;
    task.train.index = index;
    return TensorOf(MustRun(*all.trainer, plan, task)[0].end, 2);
  };
  const std::vector<double> most = over(0, 128), last = over(128, 1), whole = over(0, 129);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(whole[i], (128 * most[i] + last[i]) / 129, 1e-14);
  }
  EXPECT_GT(std::abs(last[0]), 0.1);  // by the batch's own statistics: rounding, 1e-14
}

// One client, whose update is added to the model it started from: the central evaluation then sees
// exactly the client's model.
TEST(EagerBatchNorm, OfOneClientEvaluatesCentrallyAsAtTheClient) {
  Trained t(Spec(), 40);
  LocalPlan plan;
  plan.stages = {TrainStage(t.x, 8), StageFrom(StageEnd{0}, 0)};
  plan.stages[0].local.epochs = 5;
  plan.stages[1].kind = StageKind::kLoss;
  const auto outcomes = MustRun(*t.trainer, plan, t.task);
  FlatVector model = t.x.Clone();
  const auto end = outcomes[0].end.As<double>();
  for (size_t i = 0; i < end.size(); ++i) model.As<double>()[i] += end[i] - t.x.As<double>()[i];
  const auto central = t.trainer->Evaluate(View(model), t.task.train, 0, 40, 100);
  ASSERT_TRUE(central.ok()) << central.status();
  EXPECT_NEAR(central->at(1), outcomes[1].sums[1], 1e-11);
  EXPECT_EQ(central->at(2), outcomes[1].sums[2]);
  // Evaluation uses the new statistics: with the initial ones it gives another result.
  for (const size_t entry : {kMean, kVariance}) {
    const LayoutEntry& e = t.spec.layout->entries()[entry];
    for (uint64_t i = e.offset; i < e.offset + e.size; ++i) {
      model.As<double>()[i] = t.x.As<double>()[i];
    }
  }
  const auto without = t.trainer->Evaluate(View(model), t.task.train, 0, 40, 100);
  EXPECT_GT(std::abs(without->at(1) - outcomes[1].sums[1]), 1e-3);
}

}  // namespace
}  // namespace macaw::training
