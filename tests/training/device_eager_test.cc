// The trainer of a device against the eager one, on what the fused trainer cannot do.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/training/device_testing.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

struct Model {
  std::vector<std::string> layers;
  std::vector<int64_t> input;
};

// LibTorch's ends of the same work in double precision.
std::vector<FlatVector> EndsInDouble(TrainerSetup setup, const models::ModelSpec& in_double,
                                     LocalPlan plan, const ClientTask& task,
                                     const FlatVector& start) {
  const LayoutPtr layout = setup.spec.layout;
  setup.spec = in_double;
  setup.dtype = DType::kF64;
  const FlatVector first = Converted(View(start), in_double.layout);
  plan.stages[0].start = View(first);
  const auto eager = TorchBackend().MakeTrainer(setup);
  EXPECT_TRUE(eager.ok()) << eager.status();
  std::vector<FlatVector> ends;
  const auto outcomes = MustRun(**eager, plan, task);
  for (size_t i = 0; i < 2; ++i) ends.push_back(Converted(outcomes[i].end, layout));
  return ends;
}

// Training, then a gradient, from the initial model: within `tolerance` of what was learned. With
// `in_double`, the same model in that precision, also within ten times what single precision costs
// LibTorch: on some processors its rounding moves a rectifier across zero.
void ExpectAgreementOn(const models::ModelSpec& spec, uint64_t seed, double tolerance,
                       const models::ModelSpec* in_double = nullptr) {
  RandomRun random(spec, seed);
  const TrainerSetup setup = random.Setup();
  absl::StatusOr<std::unique_ptr<LocalTrainer>> eager = TorchBackend().MakeTrainer(setup);
  ASSERT_TRUE(eager.ok()) << eager.status();
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(setup, *device);
  const FlatVector start = models::InitialModel(random.spec(), seed), zero(random.spec().layout);
  const ClientTask task = TaskOf(random.Rows(19));
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(start), 0.05));
  plan.stages[0].local.batch_size = 6;
  plan.stages[0].local.epochs = 2;
  plan.stages[0].local.momentum = 0.5;
  plan.stages.push_back(plan.stages[0]);
  plan.stages[1].kind = StageKind::kGradient;
  plan.stages[1].start = StageEnd{0};
  plan.stages.push_back(plan.stages[1]);
  plan.stages[2].kind = StageKind::kLoss;
  const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(**eager, plan, task);
  EXPECT_EQ(ours[0].steps, theirs[0].steps);
  const double error = ErrorOf(ours[0].end, theirs[0].end, View(start));
  double of_end = tolerance, of_gradient = 2 * tolerance, of_sums = 1e-5;
  if (in_double != nullptr && error > tolerance) {
    const std::vector<FlatVector> ends = EndsInDouble(setup, *in_double, plan, task, start);
    of_end = of_sums = 10 * ErrorOf(theirs[0].end, View(ends[0]), View(start));
    of_gradient = 10 * ErrorOf(theirs[1].end, View(ends[1]), View(zero));
    EXPECT_LE(of_end, 0.1);
  }
  EXPECT_LE(error, of_end);
  EXPECT_LE(ErrorOf(ours[1].end, theirs[1].end, View(zero)), of_gradient);
  for (size_t stage = 0; stage < 3; ++stage) {
    ASSERT_EQ(ours[stage].sums.size(), theirs[stage].sums.size());
    EXPECT_EQ(ours[stage].sums[0], theirs[stage].sums[0]);
    for (size_t k = 0; k < ours[stage].sums.size(); ++k) {
      EXPECT_NEAR(ours[stage].sums[k], theirs[stage].sums[k], of_sums * theirs[stage].sums[k]);
    }
  }
  const auto sums = trainer->Evaluate(View(start), task.train, 3, 17, 5);
  const auto eager_sums = (*eager)->Evaluate(View(start), task.train, 3, 17, 5);
  ASSERT_TRUE(sums.ok() && eager_sums.ok()) << sums.status() << eager_sums.status();
  for (size_t k = 0; k < sums->size(); ++k)
    EXPECT_NEAR((*sums)[k], (*eager_sums)[k], 1e-5 * (*eager_sums)[k]);
}

TEST(DeviceAgreement, WithTheEagerTrainerOnSequences) {
  const std::vector<Model> models = {
      {{"embedding 7 4", "lstm 5 layers 2", "linear 7"}, {6}},
      {{"embedding 7 4", "gru 5 layers 2", "linear 7"}, {6}},
      {{"embedding 7 4", "lstm 6", "last", "linear 3"}, {9}},
      {{"embedding 7 4", "gru 6", "mean", "linear 3"}, {9}},
      {{"embedding 7 4", "relu", "flatten", "linear 3"}, {5}},
      {{"embedding 7 6", "attention heads 3", "mean", "linear 3"}, {5}},
      {{"embedding 7 6", "positions", "attention heads 2 causal", "tanh", "linear 7"}, {5}},
      {{"embedding 7 6", "positions", "transformer heads 2 ff 9 causal dropout 0.2", "layernorm",
        "linear 7"},
       {6}},
      {{"embedding 7 6", "transformer heads 3 ff 8 dropout 0.3", "last", "gelu", "linear 3"}, {6}},
      {{"embedding 7 6", "residual [layernorm, linear 8, relu, linear 6]", "dropout 0.2", "mean",
        "layernorm", "linear 3"},
       {6}},
  };
  for (size_t i = 0; i < models.size(); ++i) {
    for (uint64_t seed = i; seed < i + 30; seed += 10) {
      SCOPED_TRACE(testing::Message() << "model " << i << ", seed " << seed);
      const bool next = models[i].layers.back() == "linear 7";
      ExpectAgreementOn(SpecOf(models[i].layers, models[i].input, next ? 7 : 3, DType::kF32), seed,
                        2e-5);
    }
  }
}

TEST(DeviceAgreement, WithTheEagerTrainerOnBatchNorm) {
  const std::vector<Model> models = {
      {{"conv 4 3 pad 1 nobias", "batchnorm", "relu", "block 4 batchnorm",
        "block 6 stride 2 batchnorm", "globalavgpool", "flatten", "linear 5"},
       {2, 9, 8}},
      {{"linear 8", "batchnorm", "relu", "linear 5"}, {11}},
      {{"batchnorm", "flatten", "residual [linear 6, batchnorm, tanh, batchnorm, linear 72]",
        "linear 5"},
       {1, 9, 8}},
  };
  for (size_t i = 0; i < models.size(); ++i) {
    for (const bool moves : {true, false}) {
      SCOPED_TRACE(testing::Message() << "model " << i << (moves ? "" : ", running moments"));
      models::ModelSpec spec = SpecOf(models[i].layers, models[i].input, 5, DType::kF32);
      spec.move_buffers = moves;
      ExpectAgreementOn(spec, i, 3e-5);
    }
  }
}

// Batches of more rows than a pass takes otherwise, a last batch of one row, buffers that a stage
// keeps, and steps that move weights without a gradient, too.
TEST(DeviceAgreement, WithTheEagerTrainerOnTheBatchesOfBatchNorm) {
  const models::ModelSpec spec =
      SpecOf({"linear 8", "batchnorm", "tanh", "linear 3"}, {6}, 3, DType::kF32);
  RandomRun random(spec, 2);
  const TrainerSetup setup = random.Setup();
  const auto eager = *TorchBackend().MakeTrainer(setup);
  const auto device = TeamsOf(3);
  const auto trainer = DeviceTrainerOf(setup, *device);
  const FlatVector start = random.Vector(0.3), zero(spec.layout);
  const ClientTask task = TaskOf(random.Rows(301));
  LocalPlan plan;
  for (const uint32_t batch : {0u, 150u, 20u}) {
    plan.stages.push_back(StageFrom(View(start), 0.1));
    plan.stages.back().local.batch_size = batch;
    plan.stages.back().local.epochs = 2;
  }
  plan.stages.push_back(plan.stages[2]);
  std::vector<bool> trainable(spec.layout->entries().size(), true);
  trainable.back() = false;  // the running variances
  plan.stages[3].trainable = std::make_shared<const std::vector<bool>>(trainable);
  plan.stages.push_back(plan.stages[0]);
  plan.stages[4].kind = StageKind::kGradient;
  plan.stages.push_back(plan.stages[2]);
  plan.stages[5].local.weight_decay = 0.1;
  plan.stages[5].local.clip_norm = 0.5;
  plan.stages[5].correction.mu = 0.5;
  plan.stages[5].correction.anchor = View(zero);
  const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(*eager, plan, task);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "stage " << i);
    EXPECT_EQ(ours[i].steps, theirs[i].steps);
    EXPECT_LE(ErrorOf(ours[i].end, theirs[i].end, i == 4 ? View(zero) : View(start)), 1e-5);
  }
  const LayoutEntry& variances = spec.layout->entries().back();
  EXPECT_TRUE(std::ranges::equal(ours[3].end.As<float>().subspan(variances.offset, variances.size),
                                 start.As<float>().subspan(variances.offset, variances.size)));
}

// Batches of several passes, whose gradients are added; some tokens are in one of them alone.
TEST(DeviceAgreement, WithTheEagerTrainerOnManyTexts) {
  RandomRun random(SpecOf({"embedding 97 3", "positions", "mean", "linear 3"}, {3}, 3, DType::kF32),
                   4);
  const TrainerSetup setup = random.Setup();
  const auto eager = *TorchBackend().MakeTrainer(setup);
  const auto device = TeamsOf(3);
  const auto trainer = DeviceTrainerOf(setup, *device);
  const FlatVector start = random.Vector(0.3), zero(random.spec().layout);
  const ClientTask task = TaskOf(random.Rows(300));
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(start), 0.1));
  plan.stages[0].local.batch_size = 200;
  plan.stages[0].local.epochs = 2;
  plan.stages.push_back(plan.stages[0]);
  plan.stages[1].kind = StageKind::kGradient;
  const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(*eager, plan, task);
  EXPECT_LE(ErrorOf(ours[0].end, theirs[0].end, View(start)), 1e-5);
  EXPECT_LE(ErrorOf(ours[1].end, theirs[1].end, View(zero)), 1e-5);
}

TEST(DeviceAgreement, WithTheEagerTrainerOnNormsAndResidualBlocks) {
  const std::vector<std::vector<std::string>> models = {
      {"conv 6 3", "groupnorm 3", "relu", "globalavgpool", "flatten", "linear 5"},
      {"groupnorm 1", "conv 4 3 stride 2", "groupnorm 4", "tanh", "flatten", "linear 5"},
      {"conv 4 3 pad 1 nobias", "groupnorm 2", "relu", "block 4", "block 6 stride 2",
       "globalavgpool", "flatten", "linear 5"},
      {"block 4 groups 1", "dropout 0.25", "block 4", "maxpool 2", "flatten", "linear 5"},
  };
  for (size_t i = 0; i < models.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "model " << i);
    const models::ModelSpec in_double = SpecOf(models[i], {2, 9, 8}, 5, DType::kF64);
    ExpectAgreementOn(SpecOf(models[i], {2, 9, 8}, 5, DType::kF32), i, 1e-5, &in_double);
  }
}

// With dropout, crops and flips, over stages that follow each other. Where the fused trainer can be
// asked, or bits be compared, another test is stricter (device_agreement_test.cc); LibTorch's sums
// of some of these networks differ by more than that.
TEST(DeviceAgreement, WithTheEagerTrainerOnEveryOptimizer) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun random(seed);
    const TrainerSetup setup = random.Setup();
    const auto eager = TorchBackend().MakeTrainer(setup);
    ASSERT_TRUE(eager.ok()) << eager.status();
    const auto device = TeamsOf(1, seed);
    const auto trainer = DeviceTrainerOf(setup, *device);
    const FlatVector start = random.Vector(0.2), other = random.Vector(0.1);
    const ClientTask task = TaskOf(random.Rows(1 + random.Below(30)));
    LocalPlan plan;
    plan.stages.push_back(random.AnyStage(View(start), {View(other)}, task.train));
    plan.stages.push_back(random.AnyStage(View(start), {View(other)}, task.train));
    for (Stage& stage : plan.stages) stage.kind = StageKind::kTrain;
    plan.stages[1].start = StageEnd{0};
    const auto ours = MustRun(*trainer, plan, task), theirs = MustRun(**eager, plan, task);
    for (size_t i = 0; i < ours.size(); ++i) {
      const LocalConfig& local = plan.stages[i].local;
      seen.insert(local.optimizer);
      SCOPED_TRACE(local.optimizer);
      EXPECT_EQ(ours[i].steps, theirs[i].steps);
      EXPECT_EQ(std::isnan(ours[i].a_norm1), std::isnan(theirs[i].a_norm1));
      EXPECT_LE(ErrorOf(ours[i].end, theirs[i].end, View(start)), 1e-4);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"adam", "adamw", "sgd"}));
}

}  // namespace
}  // namespace macaw::training
