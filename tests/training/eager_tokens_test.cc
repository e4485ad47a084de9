// Models of tokens: gradients, texts as classes, repeated bits, and scripted modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/training/sequences.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

constexpr size_t kTokensOfRow = 6;
constexpr int32_t kWords = 7;

// Random tokens. Labels are `classes` in turn, lengths 1 to kTokensOfRow in turn.
Sequences RandomTexts(size_t count, int32_t classes, uint64_t seed) {
  RandomStream stream({.seed = seed});
  Sequences texts;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> row(kTokensOfRow);
    for (int32_t& token : row) token = static_cast<int32_t>(stream.Below(kWords));
    texts.rows.push_back(std::move(row));
    texts.labels.push_back(static_cast<int32_t>(i) % classes);
    texts.lengths.push_back(1 + static_cast<int32_t>(i % kTokensOfRow));
  }
  return texts;
}

struct TokenCase {
  std::string name;
  std::vector<std::string> layers;
  TaskKind task;
  int64_t classes;
};

std::vector<TokenCase> TokenCases() {
  return {{"next token",
           {"embedding 7 8", "positions", "transformer heads 2 ff 12 causal",
            "residual [layernorm, attention heads 4 causal, linear 8]", "gru 5", "layernorm",
            "gelu", "linear 7"},
           TaskKind::kNextToken,
           kWords},
          {"mean",
           {"embedding 7 8", "attention heads 2", "transformer heads 4 ff 10", "mean",
            "residual [layernorm, linear 8, gelu]", "linear 3"},
           TaskKind::kClassification,
           3},
          {"last",
           {"embedding 7 4", "lstm 6", "gru 4 layers 2", "last", "layernorm", "linear 3"},
           TaskKind::kClassification,
           3}};
}

models::ModelSpec SpecOfCase(const TokenCase& c, DType dtype) {
  return SpecOf(c.layers, {kTokensOfRow}, c.classes, dtype);
}

// In double, against central differences of the loss.
TEST(EagerTrainer, DifferentiatesEveryLayerOfSequences) {
  for (const TokenCase& c : TokenCases()) {
    const models::ModelSpec spec = SpecOfCase(c, DType::kF64);
    Sequences texts = RandomTexts(7, static_cast<int32_t>(c.classes), 3);
    const data::Rows rows = texts.Rows();
    const FlatVector x = models::InitialModel(spec, 4);
    const FlatVector gradient = RunOne(spec, c.task, GradientAt(x), rows).end;
    const auto trainer = *MakeTrainer(spec, c.task);
    const auto loss_at = [&](const FlatVector& point) {
      const auto sums = trainer->Evaluate(View(point), rows, 0, rows.size(), 100);
      return sums->at(1) / sums->at(0);
    };
    RandomStream stream({.seed = 1});
    for (const LayoutEntry& entry : spec.layout->entries()) {
      for (int probe = 0; probe < 4; ++probe) {
        const uint64_t i = entry.offset + stream.Below(entry.size);
        const double h = 1e-6;
        FlatVector up = x.Clone(), down = x.Clone();
        up.As<double>()[i] += h;
        down.As<double>()[i] -= h;
        EXPECT_NEAR(gradient.As<double>()[i], (loss_at(up) - loss_at(down)) / (2 * h), 1e-8)
            << c.name << ": " << entry.name << " element " << i - entry.offset;
      }
    }
  }
}

Stage TrainFrom(const FlatVector& x, double lr) {
  Stage stage = StageFrom(View(x), lr);
  stage.local.batch_size = 4;
  stage.local.epochs = 2;
  stage.local.shuffle = true;
  return stage;
}

TEST(EagerTrainer, MovesEveryTensorOfTheNamedModelsOfTokens) {
  for (const std::string name : {"char_lstm", "char_gru", "char_transformer"}) {
    const models::ModelSpec spec = *models::BuildSpec(
        {.name = name, .input_shape = {kTokensOfRow}, .classes = kWords}, DType::kF32);
    Sequences texts = RandomTexts(8, kWords, 1);
    const FlatVector x = models::InitialModel(spec, 1);
    const Ran ran = RunOne(spec, TaskKind::kNextToken, TrainFrom(x, 0.01), texts.Rows());
    for (const LayoutEntry& entry : spec.layout->entries()) {
      const auto after = ran.end.As<float>().subspan(entry.offset, entry.size);
      const auto before = x.As<float>().subspan(entry.offset, entry.size);
      EXPECT_FALSE(std::equal(after.begin(), after.end(), before.begin()))
          << name << ": " << entry.name << " did not move";
    }
  }
}

TEST(EagerTrainer, GivesTheSameBitsForTokensAfterOtherWorkAndOnAnyThread) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (TokenCase c : TokenCases()) {
      c.layers.insert(c.layers.begin() + 1, "dropout 0.2");
      if (c.name != "last")
        c.layers.insert(c.layers.begin() + 2, "transformer heads 2 ff 9 causal dropout 0.3");
      const models::ModelSpec spec = SpecOfCase(c, dtype);
      Sequences texts = RandomTexts(13, static_cast<int32_t>(c.classes), 1);
      Sequences others = RandomTexts(21, static_cast<int32_t>(c.classes), 2);
      const data::Rows rows = texts.Rows();
      const FlatVector x = models::InitialModel(spec, 1);
      const Ran first = RunOne(spec, c.task, TrainFrom(x, 0.05), rows);

      const auto used = *MakeTrainer(spec, c.task);
      LocalPlan plan;
      plan.stages = {TrainFrom(x, 0.05)};
      MustRun(*used, plan, TaskOf(others.Rows()));
      ASSERT_TRUE(used->Evaluate(View(x), rows, 0, 9, 4).ok());
      const StageOutcome second = MustRun(*used, plan, TaskOf(rows))[0];
      EXPECT_EQ(DigestOfValues(View(first.end)), DigestOfValues(second.end.view())) << c.name;
      EXPECT_EQ(first.outcome.sums, second.sums) << c.name;

      Digest there{};
      std::jthread([&] {
        there = DigestOfValues(View(RunOne(spec, c.task, TrainFrom(x, 0.05), rows).end));
      }).join();
      EXPECT_EQ(DigestOfValues(View(first.end)), there) << c.name;
    }
  }
}

TEST(Texts, AreClassifiedWithoutALookAtPadding) {
  for (const std::string pool : {"mean", "last"}) {
    const models::ModelSpec spec =
        SpecOf({"embedding 7 8", "positions", "transformer heads 2 ff 12", pool, "linear 3"},
               {kTokensOfRow}, 3, DType::kF64);
    Sequences texts = RandomTexts(12, 3, 5);
    texts.lengths[4] = 0;  // an empty text is one token of padding
    texts.rows[4].assign(kTokensOfRow, 0);
    Sequences other = texts;
    for (size_t i = 0; i < texts.rows.size(); ++i) {
      const auto used = static_cast<size_t>(std::max(1, texts.lengths[i]));
      for (size_t t = used; t < kTokensOfRow; ++t)
        other.rows[i][t] = (texts.rows[i][t] + 3) % kWords;
    }
    const FlatVector x = models::InitialModel(spec, 2);
    const data::Rows rows = texts.Rows(), others = other.Rows();
    const Ran a = RunOne(spec, TaskKind::kClassification, GradientAt(x), rows);
    const Ran b = RunOne(spec, TaskKind::kClassification, GradientAt(x), others);
    EXPECT_EQ(a.outcome.sums[0], 12);
    EXPECT_NEAR(a.outcome.sums[1], b.outcome.sums[1], 1e-12) << pool;
    for (size_t i = 0; i < spec.layout->size(); ++i)
      ASSERT_NEAR(a.end.As<double>()[i], b.end.As<double>()[i], 1e-13) << pool;
  }
}

// The class is whether token 6 stands anywhere in the text.
TEST(Texts, AreLearnt) {
  const models::ModelSpec spec =
      SpecOf({"embedding 7 8", "transformer heads 2 ff 16", "mean", "linear 2"}, {kTokensOfRow}, 2,
             DType::kF32);
  Sequences texts = RandomTexts(120, 2, 9);
  for (size_t i = 0; i < texts.rows.size(); ++i) {
    const auto end = texts.rows[i].begin() + texts.lengths[i];
    texts.labels[i] = std::find(texts.rows[i].begin(), end, 6) != end ? 1 : 0;
  }
  const data::Rows rows = texts.Rows();
  const FlatVector x = models::InitialModel(spec, 1);
  Stage stage = TrainFrom(x, 0.01);
  stage.local.optimizer = "adam";
  stage.local.batch_size = 20;
  stage.local.epochs = 60;
  const Ran ran = RunOne(spec, TaskKind::kClassification, stage, rows);
  const auto sums =
      (*MakeTrainer(spec, TaskKind::kClassification))->Evaluate(View(ran.end), rows, 0, 120, 50);
  EXPECT_GE(sums->at(2), 118);
}

TEST(Texts, NeedAModelThatSaysOneThingOfEach) {
  const models::ModelSpec each =
      SpecOf({"embedding 7 3", "linear 7"}, {kTokensOfRow}, 7, DType::kF32);
  const models::ModelSpec whole =
      SpecOf({"embedding 7 3", "last", "linear 7"}, {kTokensOfRow}, 7, DType::kF32);
  EXPECT_THAT(std::string(MakeTrainer(each, TaskKind::kClassification).status().message()),
              HasSubstr("\"last\" or \"mean\""));
  EXPECT_THAT(std::string(MakeTrainer(whole, TaskKind::kNextToken).status().message()),
              HasSubstr("run.task = \"classification\""));
  Sequences texts = RandomTexts(2, 7, 1);
  texts.rows[1][2] = 7;
  const FlatVector x = models::InitialModel(whole, 1);
  const auto sums =
      (*MakeTrainer(whole, TaskKind::kClassification))->Evaluate(View(x), texts.Rows(), 0, 2, 2);
  EXPECT_THAT(std::string(sums.status().message()), HasSubstr("token 7, the model knows 0 to 6"));
}

}  // namespace
}  // namespace macaw::training
