// The trainer of a device against the fused one, and against the steps of the optimizer that all
// trainers share: the same models, rows, options and stages.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/fused/fused_trainer.h"
#include "training/local_optimizer.h"
#include "training/stage_inputs.h"

namespace macaw::training {
namespace {

std::unique_ptr<LocalTrainer> FusedTrainerOf(const TrainerSetup& setup) {
  auto trainer = fused::FusedTrainer::Make(setup, fused::SupportedIsas().front());
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return trainer.ok() ? *std::move(trainer) : nullptr;
}

// Of ends relative to what was learned, of gradients to themselves.
constexpr double kTolerance = 1e-5;

void ExpectAgreement(const std::vector<StageOutcome>& ours, const std::vector<StageOutcome>& theirs,
                     const LocalPlan& plan, const FlatVector& start) {
  ASSERT_EQ(ours.size(), theirs.size());
  const FlatVector zero(start.layout());
  for (size_t i = 0; i < ours.size(); ++i) {
    SCOPED_TRACE(testing::Message()
                 << "stage " << i << " of kind " << static_cast<int>(plan.stages[i].kind));
    EXPECT_EQ(ours[i].steps, theirs[i].steps);
    EXPECT_EQ(ours[i].rate_sum, theirs[i].rate_sum);
    EXPECT_EQ(ours[i].a_norm1, theirs[i].a_norm1);
    EXPECT_EQ(ours[i].examples, theirs[i].examples);
    ASSERT_EQ(ours[i].sums.size(), theirs[i].sums.size());
    for (size_t k = 0; k < ours[i].sums.size(); ++k) {
      const double expected = theirs[i].sums[k];
      EXPECT_NEAR(ours[i].sums[k], expected, kTolerance * std::abs(expected)) << k;
    }
    ASSERT_EQ(ours[i].end.empty(), theirs[i].end.empty());
    if (ours[i].end.empty()) continue;
    const bool gradient = plan.stages[i].kind == StageKind::kGradient;
    EXPECT_LE(ErrorOf(ours[i].end, theirs[i].end, gradient ? View(zero) : View(start)), kTolerance);
  }
}

// A plan of up to three stages, which start from given points or from earlier ends.
LocalPlan PlanOf(RandomRun& random, const std::vector<FlatVector>& vectors,
                 const data::Rows& rows) {
  LocalPlan plan;
  std::vector<Point> points;
  for (const FlatVector& vector : vectors) points.push_back(View(vector));
  std::vector<Point> starts = {points[0]};
  for (uint64_t stages = 1 + random.Below(3); stages > 0; --stages) {
    plan.stages.push_back(random.AnyStage(starts[random.Below(starts.size())], points, rows));
    const Stage& added = plan.stages.back();
    if (added.kind == StageKind::kLoss) continue;
    points.push_back(StageEnd{plan.stages.size() - 1});
    if (added.kind == StageKind::kTrain) starts.push_back(points.back());
  }
  return plan;
}

// The counts of classes behind the sums. An output on the border between two cells may be in
// either.
TEST(DeviceAgreement, WithTheFusedTrainerOnTheCountsOfClasses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    TrainerSetup setup = random.Setup();
    const FlatVector model = random.Vector(0.3);
    const data::Rows rows = random.Rows(101);
    const auto device = TeamsOf(3);
    const auto plain = DeviceTrainerOf(setup, *device)->Evaluate(View(model), rows, 3, 99, 64);
    setup.metrics = {.f1 = true, .auc = true};
    const size_t counts = setup.CountedClasses().size();
    const auto ours = DeviceTrainerOf(setup, *device)->Evaluate(View(model), rows, 3, 99, 64);
    const auto theirs = FusedTrainerOf(setup)->Evaluate(View(model), rows, 3, 99, 64);
    ASSERT_TRUE(plain.ok() && ours.ok() && theirs.ok());
    ASSERT_EQ(ours->size(), plain->size() + counts);
    ASSERT_EQ(theirs->size(), ours->size());
    EXPECT_TRUE(std::equal(plain->begin(), plain->end(), ours->begin()));
    double counted = 0, differing = 0;
    for (size_t i = plain->size(); i < ours->size(); ++i) {
      counted += (*ours)[i];
      differing += std::abs((*ours)[i] - (*theirs)[i]);
    }
    EXPECT_EQ(counted, 96.0 * static_cast<double>(setup.CountedClasses().per_row()));
    EXPECT_LE(differing, 0.02 * counted);
  }
}

TEST(DeviceAgreement, WithTheFusedTrainerOnRandomModelsAndPlans) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    random.KeepToTheFusedTrainer();
    const TrainerSetup setup = random.Setup();
    const auto fused = FusedTrainerOf(setup);
    const auto device = TeamsOf(1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    ASSERT_TRUE(fused != nullptr && trainer != nullptr);
    std::vector<FlatVector> vectors;
    vectors.push_back(random.Vector(0.2));
    vectors.push_back(random.Vector(0.1));
    vectors.push_back(random.Vector(0.01));
    const ClientTask task =
        TaskOf(random.Rows(random.Below(12) == 0 ? 130 + random.Below(70) : random.Below(36)));
    const LocalPlan plan = PlanOf(random, vectors, task.train);
    const auto theirs = MustRun(*fused, plan, task);
    ExpectAgreement(MustRun(*trainer, plan, task), theirs, plan, vectors[0]);

    const uint64_t rows = task.train.size();
    const auto sums = trainer->Evaluate(View(vectors[0]), task.train, rows / 3, rows, 7);
    const auto fused_sums = fused->Evaluate(View(vectors[0]), task.train, rows / 3, rows, 7);
    ASSERT_TRUE(sums.ok() && fused_sums.ok()) << sums.status();
    for (size_t k = 0; k < sums->size(); ++k) {
      EXPECT_NEAR((*sums)[k], (*fused_sums)[k], kTolerance * std::abs((*fused_sums)[k]));
    }
    if (HasFailure()) return;
  }
}

// Rows that are [positions, width], where layers treat each position by itself, and outputs that a
// flatten puts in order.
TEST(DeviceAgreement, WithTheFusedTrainerOnSequencesOfNumbersAndLastFlattens) {
  const std::vector<models::ModelSpec> specs = {
      SpecOf({"linear 5", "tanh", "flatten", "linear 3"}, {7, 6}, 3, DType::kF32),
      SpecOf({"sigmoid", "linear 17 nobias", "relu", "dropout 0.3", "linear 4", "sigmoid",
              "flatten", "linear 9", "relu", "linear 3"},
             {5, 16}, 3, DType::kF32),
      SpecOf({"tanh", "linear 2", "flatten"}, {3, 19}, 6, DType::kF32),
      SpecOf({"linear 5", "sigmoid", "flatten", "linear 3"}, {1, 6}, 3, DType::kF32),
      SpecOf({"conv 2 1", "avgpool 3", "flatten"}, {1, 8, 6}, 8, DType::kF32),
      SpecOf({"conv 1 3", "sigmoid", "flatten"}, {1, 5, 4}, 6, DType::kF32)};
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(specs[seed % specs.size()], seed);
    random.KeepToTheFusedTrainer();
    const TrainerSetup setup = random.Setup();
    const auto fused = FusedTrainerOf(setup);
    const auto device = TeamsOf(1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    ASSERT_TRUE(fused != nullptr && trainer != nullptr);
    std::vector<FlatVector> vectors;
    for (const double scale : {0.2, 0.1, 0.01}) vectors.push_back(random.Vector(scale));
    const ClientTask task = TaskOf(random.Rows(seed == 5 ? 150 : random.Below(30)));
    const LocalPlan plan = PlanOf(random, vectors, task.train);
    ExpectAgreement(MustRun(*trainer, plan, task), MustRun(*fused, plan, task), plan, vectors[0]);
    if (HasFailure()) return;
  }
}

TEST(DeviceAgreement, WithTheFusedTrainerOnAdapters) {
  const std::vector<models::ModelSpec> specs = {
      SpecOf({"linear 9", "relu", "linear 4"}, {7}, 4, DType::kF32,
             {"lora 2 alpha 5 0.*", "lora 3 alpha 1 2.*"}),
      SpecOf({"linear 20 nobias", "tanh", "flatten", "linear 3"}, {5, 6}, 3, DType::kF32,
             {"lora 3 alpha 2 *"}),
      SpecOf({"conv 3 3", "relu", "maxpool 2", "flatten", "linear 11", "relu", "linear 3"},
             {2, 8, 8}, 3, DType::kF32, {"lora 2 alpha 3 4.*"})};
  for (uint64_t seed = 1; seed <= 45; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(specs[seed % specs.size()], seed);
    random.KeepToTheFusedTrainer();
    const TrainerSetup setup = random.Setup();
    const auto fused = FusedTrainerOf(setup);
    const auto device = TeamsOf(seed % 5 == 0 ? 3 : 1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    ASSERT_TRUE(fused != nullptr && trainer != nullptr);
    std::vector<FlatVector> vectors;
    for (const double scale : {0.3, 0.1, 0.01}) vectors.push_back(random.Vector(scale));
    const ClientTask task = TaskOf(random.Rows(seed % 9 == 0 ? 150 : random.Below(30)));
    LocalPlan plan = PlanOf(random, vectors, task.train);
    // Most stages leave the weights that are adapted as they are.
    for (Stage& stage : plan.stages) {
      if (seed % 4 == 0) continue;
      std::vector<bool> trainable(random.spec().layout->entries().size(), true);
      for (const models::AdaptedWeight& adapted : random.spec().adapters)
        trainable[adapted.weight] = false;
      stage.trainable = std::make_shared<const std::vector<bool>>(std::move(trainable));
    }
    ExpectAgreement(MustRun(*trainer, plan, task), MustRun(*fused, plan, task), plan, vectors[0]);
    if (HasFailure()) return;
  }
}

TEST(DeviceAgreement, WithTheFusedTrainerOnTheNamedModels) {
  struct Case {
    std::string name;
    std::vector<int64_t> input;
  };
  for (const Case& named : {Case{"logistic", {60}}, Case{"mlp", {50}}, Case{"lenet5", {1, 28, 28}},
                            Case{"cnn", {1, 12, 12}}, Case{"simple_cnn", {3, 10, 10}}}) {
    SCOPED_TRACE(named.name);
    ModelConfig config;
    config.name = named.name;
    config.input_shape = named.input;
    config.classes = 10;
    RandomRun random(*models::BuildSpec(config, DType::kF32), 3);
    const TrainerSetup setup = random.Setup();
    const auto fused = FusedTrainerOf(setup);
    const auto device = TeamsOf(1);
    const auto trainer = DeviceTrainerOf(setup, *device);
    const FlatVector start = models::InitialModel(random.spec(), 5);
    const ClientTask task = TaskOf(random.Rows(9));
    LocalPlan plan;
    plan.stages.push_back(StageFrom(View(start), 0.05));
    plan.stages[0].local.batch_size = 5;
    plan.stages[0].local.epochs = 2;
    plan.stages.push_back(plan.stages[0]);
    plan.stages[1].kind = StageKind::kGradient;
    ExpectAgreement(MustRun(*trainer, plan, task), MustRun(*fused, plan, task), plan, start);
  }
}

// Carries out stage `index` of training with a gradient stage of `trainer` for each step, and the
// optimizer that trainers share. Neither dropout nor augmentation, which gradient stages leave out.
FlatVector StepByStep(LocalTrainer& trainer, const Stage& stage, uint32_t index,
                      const ClientTask& task, const std::vector<StageOutcome>& before,
                      const models::ModelSpec& spec) {
  FlatVector weights(spec.layout), gradient(spec.layout), sum;
  const auto copy = [](ConstVectorView from, FlatVector& to) {
    std::ranges::copy(from.As<float>(), to.As<float>().begin());
  };
  copy(*Resolve(stage.start, before), weights);
  const Point anchor = stage.correction.anchor.value_or(stage.start);
  const ConstVectorView v = stage.correction.v.empty()
                                ? ConstVectorView()
                                : *SumOf(stage.correction.v, before, spec, sum);
  const Pieces pieces = TrainablePieces(*spec.layout, stage.trainable.get());
  LocalOptimizer optimizer(spec.layout);
  optimizer.Start(stage.local, stage.correction.mu);
  BatchOrder order;
  order.Start({.seed = task.seed, .round = task.round, .phase = task.phase, .client = task.client},
              index, task.train.size(), stage.local);
  uint64_t steps = 0;
  for (auto batch = order.Next(); !batch.empty(); batch = order.Next()) {
    std::vector<uint32_t> rows;
    for (const uint32_t position : batch)
      rows.push_back(static_cast<uint32_t>(task.train.at(position)));
    ClientTask step = task;
    step.train.index = rows;
    LocalPlan plan;
    plan.stages = {stage};
    plan.stages[0].kind = StageKind::kGradient;
    plan.stages[0].start = View(weights);
    plan.stages[0].local.optimizer = "sgd";  // which it does not use
    copy(MustRun(trainer, plan, step)[0].end, gradient);
    optimizer.StepEach<float>({{.step = ++steps, .pieces = pieces}},
                              {.weights = weights.As<float>(),
                               .gradient = gradient.As<float>(),
                               .anchor = Resolve(anchor, before)->As<float>(),
                               .v = v.empty() ? std::span<const float>() : v.As<float>()},
                              /*clipped=*/false);
  }
  return weights;
}

// Every optimizer with every option, in several stages, each of which starts afresh. The gradients
// of the fused trainer give the same weights but for rounding, those of the device the same bits.
TEST(DeviceAgreement, WithTheOptimizerThatTrainersShareStepByStep) {
  std::map<std::string, int> stages;
  int clipped = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    TrainerSetup setup = random.Setup();
    setup.transform.pad_crop = 0;
    setup.transform.flip = false;
    setup.transform.client_noise = 0;  // each step's rows are a client's
    const auto device = TeamsOf(1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    ASSERT_TRUE(trainer != nullptr);
    if (random.HasDropout()) continue;
    std::vector<FlatVector> vectors;
    for (const double scale : {0.2, 0.1, 0.01}) vectors.push_back(random.Vector(scale));
    const ClientTask task =
        TaskOf(random.Rows(random.Below(12) == 0 ? 130 + random.Below(70) : random.Below(36)));
    const LocalPlan plan = PlanOf(random, vectors, task.train);
    std::vector<StageOutcome> outcomes = MustRun(*trainer, plan, task);
    for (const StageOutcome& outcome : outcomes) ASSERT_TRUE(outcome.end.Fetch().ok());
    const auto fused = FusedTrainerOf(setup);
    const auto again = DeviceTrainerOf(setup, *device);
    for (uint32_t i = 0; i < plan.stages.size(); ++i) {
      const Stage& stage = plan.stages[i];
      if (stage.kind != StageKind::kTrain) continue;
      SCOPED_TRACE(testing::Message() << "stage " << i << " of " << stage.local.optimizer);
      ++stages[stage.local.optimizer];
      const bool corrects = stage.correction.mu != 0 || !stage.correction.v.empty();
      if (stage.local.clip_norm > 0 && stage.local.clip == "corrected" && corrects) ++clipped;
      EXPECT_EQ(std::isnan(outcomes[i].a_norm1), stage.local.optimizer != "sgd");
      const FlatVector near = StepByStep(*fused, stage, i, task, outcomes, random.spec());
      // Of a stage of one small step, the rounding of the weights themselves is more than 1e-5.
      EXPECT_LE(ErrorOf(outcomes[i].end, View(near), *Resolve(stage.start, outcomes)),
                3 * kTolerance);
      const FlatVector same = StepByStep(*again, stage, i, task, outcomes, random.spec());
      if (stage.local.clip_norm == 0) {
        EXPECT_TRUE(std::ranges::equal(outcomes[i].end.view().bytes, View(same).bytes));
      } else {  // the sum of squares has another order
        EXPECT_LE(ErrorOf(outcomes[i].end, View(same), *Resolve(stage.start, outcomes)), 1e-6);
      }
    }
    if (HasFailure()) return;
  }
  for (const char* optimizer : {"sgd", "adam", "adamw"}) EXPECT_GE(stages[optimizer], 20);
  EXPECT_GE(clipped, 5);
}

}  // namespace
}  // namespace macaw::training
