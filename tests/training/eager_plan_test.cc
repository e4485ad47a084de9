// Plans of several stages, as the client halves of algorithms write them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/testing.h"

namespace macaw::training {
namespace {

using Vec = std::vector<double>;

void Descend(const HandLine& line, double lr, double mu, const Vec& anchor, int steps, Vec& w) {
  for (int step = 0; step < steps; ++step) {
    const Vec g = line.Gradient(w);
    for (int k = 0; k < 3; ++k) w[k] -= lr * (g[k] + mu * (w[k] - anchor[k]));
  }
}

// Ditto (Li et al. 2021): FedAvg's steps from x, then personal steps from v_k drawn towards x.
TEST(DittoSketch, IsTwoTrainStagesWithOneAnchor) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec x = {0.5, -0.25, 0.125}, personal = {-0.5, 1, 0.75};
  const FlatVector global = PointOf(spec, x), own = PointOf(spec, personal);

  LocalPlan plan;
  plan.stages = {StageFrom(View(global), 0.1), StageFrom(View(own), 0.05)};
  plan.stages[0].local.epochs = 2;
  plan.stages[1].local.epochs = 3;
  plan.stages[1].correction = {.mu = 0.7, .anchor = View(global)};
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));

  Vec w = x, v = personal;
  Descend(line, 0.1, 0, x, 2, w);
  Descend(line, 0.05, 0.7, x, 3, v);
  ExpectPoint(outcomes[0].end, w);
  ExpectPoint(outcomes[1].end, v);
}

TEST(Plan, GivesTheSameBitsWhenAStageIsAddedWhileItRuns) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector start = PointOf(spec, {0.5, -0.25, 0.125});
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1), StageFrom(StageEnd{0}, 0.2),
                 StageFrom(StageEnd{0}, 0.1)};
  plan.stages[2].correction = {.mu = 0.5, .anchor = StageEnd{1}};
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const ClientTask task = TaskOf(examples.Targets());
  std::vector<std::vector<double>> expected;
  for (const StageOutcome& outcome : MustRun(*trainer, plan, task))
    expected.push_back(TensorOf(outcome.end, 0));
  for (const size_t count : {0, 1, 2}) {
    const auto outcomes = MustRun(*trainer, AddedLater(plan, count), task);
    ASSERT_EQ(outcomes.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(TensorOf(outcomes[i].end, 0), expected[i]) << count;
  }
}

// FedLin (Mitra et al. 2021): steps along g(y) − ∇f_i(x) + c, with ∇f_i(x) a stage of this plan.
TEST(Plan, CorrectsBySumsOfPointsWithAStagesEndAmongThem) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec x = {0.5, -0.25, 0.125}, c = {0.25, -1, 0.75};
  const FlatVector start = PointOf(spec, x), mean = PointOf(spec, c);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0), StageFrom(View(start), 0.1)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[1].local.epochs = 3;
  plan.stages[1].correction.v = {{.point = View(mean)},
                                 {.point = StageEnd{0}, .factor = -1},
                                 {.point = View(start), .factor = .5}};
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));

  const Vec at_x = line.Gradient(x);
  Vec w = x;
  for (int step = 0; step < 3; ++step) {
    const Vec g = line.Gradient(w);
    for (int k = 0; k < 3; ++k) w[k] -= 0.1 * (g[k] + c[k] - at_x[k] + 0.5 * x[k]);
  }
  ExpectPoint(outcomes[0].end, at_x);
  ExpectPoint(outcomes[1].end, w);
}

TEST(Plan, StartsAStageAndAnchorsItAtTheEndOfAnother) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec x = {0.5, -0.25, 0.125};
  const FlatVector start = PointOf(spec, x);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1), StageFrom(StageEnd{0}, 0.05),
                 StageFrom(StageEnd{0}, 0.02)};
  plan.stages[2].local.epochs = 2;
  plan.stages[2].correction = {.mu = 0.5, .anchor = StageEnd{1}};
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  Vec first = x;
  Descend(line, 0.1, 0, x, 1, first);
  Vec second = first, third = first;
  Descend(line, 0.05, 0, x, 1, second);
  Descend(line, 0.02, 0.5, second, 2, third);
  ExpectPoint(outcomes[0].end, first);
  ExpectPoint(outcomes[1].end, second);
  ExpectPoint(outcomes[2].end, third);
}

// SCAFFOLD's option I, Mime's first phase and q-FedAvg's loss before training.
TEST(Plan, GivesGradientAndLossAtAPoint) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec x = {0.5, -0.25, 0.125};
  const FlatVector start = PointOf(spec, x);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1), StageFrom(View(start), 0.1),
                 StageFrom(View(start), 0.1)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[1].kind = StageKind::kLoss;
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  ExpectPoint(outcomes[0].end, line.Gradient(x));
  EXPECT_EQ(outcomes[0].steps, 0u);
  EXPECT_EQ(outcomes[0].examples, 5u);
  EXPECT_TRUE(outcomes[1].end.empty());
  EXPECT_NEAR(outcomes[1].sums[1] / outcomes[1].sums[0], line.Loss(x), 1e-14);
  Vec w = x;
  Descend(line, 0.1, 0, x, 1, w);
  ExpectPoint(outcomes[2].end, w);
}

TEST(Plan, TakesItsRowsFromTheNamedSplit) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector start = PointOf(spec, {0.5, -0.25, 0.125});
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1), StageFrom(View(start), 0.1)};
  plan.stages[0].kind = plan.stages[1].kind = StageKind::kLoss;
  plan.stages[0].rows = data::Split::kTest;
  plan.stages[1].rows = data::Split::kValidation;
  ClientTask task = TaskOf({});
  const std::vector<uint32_t> two = {3, 1};
  task.test = task.validation = examples.Targets();
  task.validation.index = two;
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, task);
  EXPECT_EQ(outcomes[0].sums[0], 5);
  EXPECT_EQ(outcomes[1].sums[0], 2);
}

// More rows than a pass takes at a time: the mean is over all of them, class weights included.
TEST(Plan, MeansAGradientOverAllRows) {
  const models::ModelSpec spec = SpecOf({"linear 3"}, {4}, 3, DType::kF64);
  const Examples examples = RandomExamples(300, 4, 3, 5);
  const FlatVector x = models::InitialModel(spec, 2);
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 1.0), StageFrom(View(x), 1.0), StageFrom(View(x), 1.0)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[1].kind = StageKind::kLoss;
  for (Stage& stage : plan.stages) stage.local.class_weights = {1, 4, 0.5};
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Classes()));
  // One full-batch step with rate 1 moves by the same gradient.
  for (size_t i = 0; i < spec.layout->size(); ++i) {
    EXPECT_NEAR(outcomes[0].end.As<double>()[i],
                x.As<double>()[i] - outcomes[2].end.As<double>()[i], 1e-14);
  }
  EXPECT_NEAR(outcomes[0].sums[1], outcomes[2].sums[1], 1e-10);
  EXPECT_NEAR(outcomes[1].sums[1], outcomes[2].sums[1], 1e-10);
  EXPECT_EQ(outcomes[1].sums[0], 300);
}

// FedRep (Collins et al. 2021): the head with the body frozen, then the body with the head frozen.
TEST(FedRepSketch, MovesOnlyTheTensorsAStageNames) {
  const models::ModelSpec spec = SpecOf({"linear 3", "tanh", "linear 1"}, {2}, 1, DType::kF64);
  const Examples examples = Line().Stored();
  const FlatVector x = models::InitialModel(spec, 1);
  const auto head =
      std::make_shared<const std::vector<bool>>(std::vector{false, false, true, true});
  const auto body =
      std::make_shared<const std::vector<bool>>(std::vector{true, true, false, false});
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1), StageFrom(StageEnd{0}, 0.1), StageFrom(View(x), 0.1)};
  plan.stages[0].trainable = head;
  plan.stages[1].trainable = body;
  for (Stage& stage : plan.stages) {
    stage.local.epochs = 2;
    stage.local.momentum = 0.5;
    stage.local.weight_decay = 0.1;
    stage.correction.mu = 0.1;
  }
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  for (size_t entry = 0; entry < 4; ++entry) {
    const bool is_head = entry >= 2;
    EXPECT_EQ(TensorOf(outcomes[0].end, entry) == TensorOf(View(x), entry), !is_head) << entry;
    EXPECT_EQ(TensorOf(outcomes[1].end, entry) == TensorOf(outcomes[0].end, entry), is_head)
        << entry;
    EXPECT_NE(TensorOf(outcomes[2].end, entry), TensorOf(View(x), entry)) << entry;
  }
}

TEST(Plan, LeavesEverythingInPlaceWhenNothingIsTrainable) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector x = PointOf(spec, {0.5, -0.25, 0.125});
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  plan.stages[0].trainable = std::make_shared<const std::vector<bool>>(2, false);
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  ExpectPoint(outcomes[0].end, {0.5, -0.25, 0.125}, 0);
  EXPECT_EQ(outcomes[0].steps, 1u);
}

TEST(Plan, OfAClientWithoutRowsStaysAtItsStart) {
  const models::ModelSpec spec = Line().Spec();
  const FlatVector x = PointOf(spec, {1, 2, 3});
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf({}));
  EXPECT_EQ(outcomes[0].steps, 0u);
  ExpectPoint(outcomes[0].end, {1, 2, 3}, 0);
}

}  // namespace
}  // namespace macaw::training
