// Sums over rows: all of them once, in order, with any back end.
#include "training/statistics_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/training/testing.h"
#include "training/api/row_statistics.h"
#include "training/backends.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

// Σ x by class, and the rows; the number of the row times its first feature shows their order.
class SumsByClass final : public RowStatistics {
 public:
  const LayoutPtr& layout() const override {
    static const LayoutPtr& layout =
        *new LayoutPtr(ParameterLayout::Scalars("sums", 8, DType::kF64));
    return layout;
  }
  void Add(const NumberedRows& rows, ConstVectorView at, VectorView sums) const override {
    const std::span<double> to = sums.As<double>();
    for (size_t r = 0; r < rows.count(); ++r) {
      const auto label = static_cast<size_t>(rows.classes[r]);
      for (const double x : rows.row(r)) to[label] += x;
      to[3] += 1;
      to[4] += to[3] * rows.row(r)[0];
    }
    to[5] = at.As<float>()[0];
  }
};

TrainerSetup SumsSetup() {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
  setup.statistics = true;
  setup.backend.name = "fused";
  return setup;
}

Stage SumsStage(const FlatVector& model) {
  Stage stage;
  stage.kind = StageKind::kStatistics;
  stage.start = model.view();
  stage.statistics = std::make_shared<SumsByClass>();
  return stage;
}

TEST(StatisticsTrainer, SumsOverAllRowsInTheirOrder) {
  const TrainerSetup setup = SumsSetup();
  const auto trainer = *Backends("").MakeTrainer(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = RandomExamples(150, 4, 3, 3);  // more than are taken at once
  const data::Rows rows = examples.Classes();
  std::vector<double> expected(8);
  for (size_t i = 0; i < 150; ++i) {
    const auto* const x =
        reinterpret_cast<const float*>(rows.block.features + i * rows.block.row_bytes);
    for (size_t k = 0; k < 4; ++k) expected[i % 3] += double{x[k]};
    expected[3] += 1;
    expected[4] += expected[3] * double{x[0]};
  }
  expected[5] = model.As<float>()[0];
  for (int turn = 0; turn < 2; ++turn) {  // each turn begins at zero
    const auto outcome = trainer->Run(LocalPlan{{SumsStage(model)}}, TaskOf(examples.Classes()));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const auto sums = outcome->front().end.As<double>();
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sums[i], expected[i]) << i;
    EXPECT_EQ(outcome->front().examples, 150u);
    EXPECT_EQ(outcome->front().steps, 0u);
  }
}

TEST(StatisticsTrainer, GivesOtherPlansToItsBackEnd) {
  TrainerSetup setup = SumsSetup();
  const auto trainer = *Backends("").MakeTrainer(setup);
  setup.statistics = false;
  const auto alone = *Backends("").MakeTrainer(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = RandomExamples(9, 4, 3, 3);
  const LocalPlan plan{{StageFrom(model.view(), 0.1)}};
  EXPECT_EQ(DigestOfValues(trainer->Run(plan, TaskOf(examples.Classes()))->front().end),
            DigestOfValues(alone->Run(plan, TaskOf(examples.Classes()))->front().end));
  const LocalPlan mixed{{SumsStage(model), StageFrom(model.view(), 0.1)}};
  EXPECT_THAT(std::string(trainer->Run(mixed, TaskOf(examples.Classes())).status().message()),
              HasSubstr("mixes statistics"));
  // A back end by itself knows no sums.
  EXPECT_FALSE(alone->Run(LocalPlan{{SumsStage(model)}}, TaskOf(examples.Classes())).ok());
}

TEST(StatisticsTrainer, RefusesALabelThatTheModelDoesNotKnow) {
  const TrainerSetup setup = SumsSetup();
  const auto trainer = *Backends("").MakeTrainer(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples({{1, 2, 3, 4}}, {3});
  EXPECT_THAT(std::string(trainer->Run(LocalPlan{{SumsStage(model)}}, TaskOf(examples.Classes()))
                              .status()
                              .message()),
              HasSubstr("label 3"));
}

// Σ x; it reads no labels.
class SumsOfRows final : public RowStatistics {
 public:
  const LayoutPtr& layout() const override {
    static const LayoutPtr& layout =
        *new LayoutPtr(ParameterLayout::Scalars("sums", 2, DType::kF64));
    return layout;
  }
  void Add(const NumberedRows& rows, ConstVectorView, VectorView sums) const override {
    EXPECT_TRUE(rows.classes.empty() && rows.targets.empty());
    for (size_t r = 0; r < rows.count(); ++r) {
      for (const double x : rows.row(r)) sums.As<double>()[0] += x;
      sums.As<double>()[1] += 1;
    }
  }
};

TEST(StatisticsTrainer, NeedsNoLabelsWhereTheTaskHasNone) {
  TrainerSetup setup = SumsSetup();
  setup.spec = SpecOf({"linear 4"}, {4}, 4, DType::kF32);
  setup.task = TaskKind::kReconstruction;
  const auto trainer = *Backends("").MakeTrainer(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples({{1, 2, 3, 4}, {5, 6, 7, 8}}, {9, 9});
  Stage stage = SumsStage(model);
  stage.statistics = std::make_shared<SumsOfRows>();
  for (const data::Rows& rows : {examples.Classes(), examples.Targets()}) {
    const auto outcome = trainer->Run(LocalPlan{{stage}}, TaskOf(rows));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->front().end.As<double>()[0], 36);
    EXPECT_EQ(outcome->front().end.As<double>()[1], 2);
  }
}

TEST(StatisticsTrainer, IsNotForTokensNorAProgramOfTheOwners) {
  TrainerSetup setup = SumsSetup();
  setup.backend.name = "process";
  setup.backend.program.command = {"true"};
  EXPECT_THAT(std::string(BackendsFor(setup).status().message()), HasSubstr("sums over rows"));
  setup = SumsSetup();
  setup.backend.name = "torch";
  setup.feature_type = data::FeatureType::kI32;
  EXPECT_THAT(std::string(BackendsFor(setup).status().message()), HasSubstr("tokens"));
}

}  // namespace
}  // namespace macaw::training
