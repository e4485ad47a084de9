// The next-token task: which positions count, and that a model learns from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/sequences.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocabulary = 5, kLength = 4;

models::ModelSpec SequenceSpec() {
  return SpecOf({"embedding 5 3", "lstm 6", "linear 5"}, {kLength}, kVocabulary, DType::kF64);
}

std::unique_ptr<LocalTrainer> Trainer(const models::ModelSpec& spec) {
  return *MakeTrainer(spec, TaskKind::kNextToken);
}

Ran RunOne(const models::ModelSpec& spec, Stage stage, const data::Rows& rows) {
  return RunOne(spec, TaskKind::kNextToken, std::move(stage), rows);
}

TEST(NextToken, CountsEachPositionInUseOnce) {
  const models::ModelSpec spec = SequenceSpec();
  Sequences text{{{1, 2, 3, 0}, {4, 0, 0, 0}, {1, 1, 2, 2}}, {4, 1, 3}, {3, 1, 4}};
  // All weights are zero except the last bias, so every position predicts token 2.
  FlatVector x(spec.layout);
  const LayoutEntry* bias = spec.layout->Find("2.bias");
  x.As<double>()[bias->offset + 2] = std::log(4.0);  // p(2) = 1/2, the others 1/8
  const auto sums = Trainer(spec)->Evaluate(View(x), text.Rows(), 0, 3, 2);
  ASSERT_TRUE(sums.ok()) << sums.status();
  // Labels: 2 3 4 | 1 | 1 2 2 3.
  EXPECT_EQ(sums->at(0), 8);
  EXPECT_NEAR(sums->at(1), 3 * std::log(2.0) + 5 * std::log(8.0), 1e-12);
  EXPECT_EQ(sums->at(2), 3);
}

TEST(NextToken, DoesNotLookAtPadding) {
  const models::ModelSpec spec = SequenceSpec();
  const FlatVector x = models::InitialModel(spec, 3);
  Sequences one{{{1, 2, 0, 0}, {3, 4, 1, 2}}, {4, 1}, {2, 4}};
  Sequences other = one;
  other.rows[0] = {1, 2, 4, 3};
  const data::Rows rows = one.Rows(), others = other.Rows();
  const auto a = RunOne(spec, GradientAt(x), rows), b = RunOne(spec, GradientAt(x), others);
  EXPECT_EQ(a.outcome.sums, b.outcome.sums);
  for (size_t i = 0; i < spec.layout->size(); ++i) {
    EXPECT_NEAR(a.end.As<double>()[i], b.end.As<double>()[i], 1e-15);
  }
  // The mean is over tokens, not rows: 6 of them.
  Sequences first{{one.rows[0]}, {4}, {2}}, second{{one.rows[1]}, {1}, {4}};
  const data::Rows first_rows = first.Rows(), second_rows = second.Rows();
  const auto f = RunOne(spec, GradientAt(x), first_rows);
  const auto s = RunOne(spec, GradientAt(x), second_rows);
  for (size_t i = 0; i < spec.layout->size(); ++i) {
    EXPECT_NEAR(a.end.As<double>()[i], (2 * f.end.As<double>()[i] + 4 * s.end.As<double>()[i]) / 6,
                1e-14);
  }
}

TEST(NextToken, IsLearnt) {
  const models::ModelSpec spec = SequenceSpec();
  const FlatVector x = models::InitialModel(spec, 3);
  Sequences text{{{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 0}, {3, 4, 0, 1}}, {4, 0, 1, 2}, {}};
  Stage stage = StageFrom(View(x), 0.05);
  stage.local.optimizer = "adam";
  stage.local.batch_size = 2;
  stage.local.epochs = 200;
  const data::Rows rows = text.Rows();
  const Ran ran = RunOne(spec, stage, rows);
  EXPECT_EQ(ran.outcome.examples, 800u);
  EXPECT_EQ(ran.outcome.sums[0], 3200);
  const auto sums = Trainer(spec)->Evaluate(View(ran.end), rows, 0, 4, 4);
  EXPECT_EQ(sums->at(2), 16) << "the successor is a function of the token";
  EXPECT_LT(sums->at(1) / 16, 0.05);
}

TEST(NextToken, NeedsTokensAndAModelOfThem) {
  const models::ModelSpec of_vectors = SpecOf({"linear 5"}, {kLength}, kVocabulary, DType::kF64);
  const auto message = [](const auto& trainer) { return std::string(trainer.status().message()); };
  EXPECT_THAT(message(MakeTrainer(of_vectors, TaskKind::kNextToken, data::FeatureType::kI32)),
              HasSubstr("begin it with \"embedding TOKENS OUT\""));
  EXPECT_THAT(message(MakeTrainer(SequenceSpec(), TaskKind::kNextToken, data::FeatureType::kF32)),
              HasSubstr("the data does not hold any"));
  EXPECT_THAT(
      message(MakeTrainer(SequenceSpec(), TaskKind::kClassification, data::FeatureType::kI32)),
      HasSubstr("has outputs at each position"));
  EXPECT_THAT(message(MakeTrainer(of_vectors, TaskKind::kNextToken, data::FeatureType::kF32)),
              HasSubstr("has outputs for the whole example"));

  const models::ModelSpec spec = SequenceSpec();
  const FlatVector x = models::InitialModel(spec, 3);
  Sequences text{{{0, 1, 2, 5}}, {1}, {}};
  const auto sums = Trainer(spec)->Evaluate(View(x), text.Rows(), 0, 1, 1);
  EXPECT_THAT(std::string(sums.status().message()), HasSubstr("token 5, the model knows 0 to 4"));
}

}  // namespace
}  // namespace macaw::training
