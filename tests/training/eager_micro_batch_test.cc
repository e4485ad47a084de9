// local.micro_batch: a batch that passes in parts is the batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/sequences.h"

namespace macaw::training {
namespace {

void ExpectSame(const Ran& parts, const Ran& whole) {
  EXPECT_EQ(parts.outcome.steps, whole.outcome.steps);
  EXPECT_EQ(parts.outcome.examples, whole.outcome.examples);
  ASSERT_EQ(parts.outcome.sums.size(), whole.outcome.sums.size());
  for (size_t i = 0; i < whole.outcome.sums.size(); ++i)
    EXPECT_NEAR(parts.outcome.sums[i], whole.outcome.sums[i], 1e-9);
  const auto a = parts.end.As<double>(), b = whole.end.As<double>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
}

TEST(MicroBatch, OfWeightedClassesIsTheBatch) {
  const models::ModelSpec spec = SpecOf({"linear 6", "tanh", "linear 3"}, {4}, 3, DType::kF64);
  const FlatVector x = models::InitialModel(spec, 5);
  const Examples examples = RandomExamples(23, 4, 3, 8);
  const auto run = [&](uint32_t micro) {
    Stage stage = StageFrom(View(x), 0.1);
    stage.local.batch_size = 7;  // a last batch of two
    stage.local.epochs = 2;
    stage.local.momentum = 0.5;
    stage.local.clip_norm = 0.4;
    stage.local.class_weights = {1, 2, 5};
    stage.local.label_smoothing = 0.1;
    stage.local.micro_batch = micro;
    LocalPlan plan;
    plan.stages = {stage};
    const auto trainer = TrainerOf(spec, TaskKind::kClassification);
    const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
    return Ran{outcome, FlatVector::CopyOf(outcome.end, spec.layout)};
  };
  const Ran whole = run(0);
  EXPECT_EQ(whole.outcome.steps, 8u);
  for (const uint32_t micro : {1u, 3u, 6u}) ExpectSame(run(micro), whole);
  const Ran large = run(7);
  EXPECT_EQ(large.end.view().bytes.size(), whole.end.view().bytes.size());
  EXPECT_EQ(std::memcmp(large.end.view().bytes.data(), whole.end.view().bytes.data(),
                        whole.end.view().bytes.size()),
            0)
      << "a batch that fits passes at once";
}

TEST(MicroBatch, OfTextsOfSeveralLengthsIsTheBatch) {
  const models::ModelSpec spec =
      SpecOf({"embedding 5 3", "lstm 4", "linear 5"}, {4}, 5, DType::kF64);
  const FlatVector x = models::InitialModel(spec, 5);
  Sequences text{{{0, 1, 2, 3}, {1, 2, 0, 0}, {2, 0, 0, 0}, {3, 4, 1, 0}, {4, 4, 4, 4}},
                 {4, 0, 1, 2, 3},
                 {4, 2, 1, 3, 4}};
  const data::Rows rows = text.Rows();
  const auto run = [&](uint32_t micro) {
    Stage stage = StageFrom(View(x), 0.1);
    stage.local.epochs = 3;
    stage.local.micro_batch = micro;
    return RunOne(spec, TaskKind::kNextToken, stage, rows);
  };
  const Ran whole = run(0);
  ExpectSame(run(2), whole);
  ExpectSame(run(1), whole);
}

// Two equal rows have the gradient of one, if their masks are equal, too.
TEST(MicroBatch, DrawsNewMasksForEachPart) {
  const models::ModelSpec spec =
      SpecOf({"linear 16", "dropout 0.5", "linear 2"}, {3}, 2, DType::kF64);
  const FlatVector x = models::InitialModel(spec, 5);
  const Examples one({{1, 2, 3}}, {1}), two({{1, 2, 3}, {1, 2, 3}}, {1, 1});
  const auto run = [&](const Examples& examples, uint32_t micro) {
    Stage stage = StageFrom(View(x), 0.1);
    stage.local.micro_batch = micro;
    LocalPlan plan;
    plan.stages = {stage};
    const auto trainer = TrainerOf(spec, TaskKind::kClassification);
    const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
    return FlatVector::CopyOf(outcome.end, spec.layout);
  };
  const FlatVector single = run(one, 0), parts = run(two, 1);
  double apart = 0;
  for (size_t i = 0; i < single.As<double>().size(); ++i)
    apart = std::max(apart, std::abs(single.As<double>()[i] - parts.As<double>()[i]));
  EXPECT_GT(apart, 1e-6);
}

// Ten rows in parts of at most three are 2, 3, 2 and 3, and three in parts of two are one part.
TEST(MicroBatch, LeavesNoRowAloneBeforeANorm) {
  const models::ModelSpec spec =
      SpecOf({"linear 4", "batchnorm", "tanh", "linear 2"}, {3}, 2, DType::kF64);
  const FlatVector x = models::InitialModel(spec, 5);
  const auto run = [&](size_t rows, uint32_t micro) {
    const Examples examples = RandomExamples(rows, 3, 2, 8);
    Stage stage = StageFrom(View(x), 0.1);
    stage.local.micro_batch = micro;
    LocalPlan plan;
    plan.stages = {stage};
    const auto trainer = TrainerOf(spec, TaskKind::kClassification);
    const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
    EXPECT_EQ(outcome.examples, rows);
    return FlatVector::CopyOf(outcome.end, spec.layout);
  };
  const FlatVector whole = run(3, 0), together = run(3, 2), parts = run(10, 3);
  for (size_t i = 0; i < whole.As<double>().size(); ++i)
    EXPECT_EQ(together.As<double>()[i], whole.As<double>()[i]);
  // A part of one row would be normalised by the running statistics, which a batch of one leaves.
  const size_t mean = 5;  // after two weights and biases and the norm's
  ASSERT_EQ(spec.layout->entries()[mean + 1].group, Group::kBuffer);
  EXPECT_NE(parts.As<double>()[spec.layout->entries()[mean + 1].offset], 0);
}

}  // namespace
}  // namespace macaw::training
