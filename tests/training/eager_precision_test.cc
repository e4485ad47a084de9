// local.precision of LibTorch's trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/testing.h"
#include "training/backends.h"

namespace macaw::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainerSetup SetupOf(const std::string& precision) {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 64", "relu", "linear 4"}, {32}, 4, DType::kF32);
  setup.task = TaskKind::kClassification;
  setup.backend = TorchChoice();
  setup.local.precision = precision;
  return setup;
}

TEST(Precision, OfBfloat16IsCloseAndNotEqual) {
  const Examples examples = RandomExamples(64, 32, 4, 3);
  const auto train = [&](const std::string& precision) {
    const TrainerSetup setup = SetupOf(precision);
    const FlatVector x = models::InitialModel(setup.spec, 2);
    const auto trainer = *TorchBackend().MakeTrainer(setup);
    Stage stage = StageFrom(View(x), 0.1);
    stage.local.precision = precision;
    stage.local.epochs = 5;
    LocalPlan plan;
    plan.stages = {stage};
    const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
    const auto sums = trainer->Evaluate(outcome.end, examples.Classes(), 0, 64, 64);
    EXPECT_TRUE(sums.ok());
    return std::pair(FlatVector::CopyOf(outcome.end, setup.spec.layout), sums->at(1) / 64);
  };
  const auto [full, full_loss] = train("full");
  const auto [half, half_loss] = train("bf16");
  EXPECT_NEAR(half_loss, full_loss, 0.02);
  EXPECT_NE(half_loss, full_loss);
  double apart = 0;
  for (size_t i = 0; i < full.As<float>().size(); ++i)
    apart = std::max<double>(apart, std::abs(full.As<float>()[i] - half.As<float>()[i]));
  EXPECT_GT(apart, 0);
  EXPECT_LT(apart, 0.02);
  const auto [again, again_loss] = train("full");
  EXPECT_EQ(again_loss, full_loss) << "what one pass sets is over with it";
}

TEST(Precision, IsRefusedWhereItCannotBe) {
  const auto error = [](const TrainerSetup& setup) {
    return std::string(TorchBackend().Supports(setup).message());
  };
  EXPECT_EQ(error(SetupOf("bf16")), "");
  EXPECT_THAT(error(SetupOf("tf32")), HasSubstr("workers.devices"));
  TrainerSetup doubles = SetupOf("bf16");
  doubles.spec = SpecOf({"linear 4"}, {32}, 4, DType::kF64);
  doubles.dtype = DType::kF64;
  const auto refused = [](const TrainerSetup& setup) {
    return std::string(BackendsFor(setup).status().message());
  };
  EXPECT_THAT(refused(doubles), HasSubstr("run.dtype"));
  TrainerSetup parts = SetupOf("full");
  parts.local.micro_batch = 1;
  EXPECT_EQ(refused(parts), "");
  parts.hooks = true;
  EXPECT_THAT(refused(parts), HasSubstr("whole batches"));
  parts.hooks = false;
  parts.spec = SpecOf({"linear 4", "batchnorm", "linear 4"}, {32}, 4, DType::kF32);
  EXPECT_THAT(refused(parts), HasSubstr("batch norm"));
}

TEST(Precision, IsTrainedByLibTorch) {
  TrainerSetup setup = SetupOf("bf16");
  setup.backend = {.name = "auto"};
  EXPECT_THAT(*BackendsFor(setup), ElementsAre("torch"));
  setup.local.precision = "full";
  EXPECT_THAT(*BackendsFor(setup), ElementsAre("fused"));
  setup.local.micro_batch = 4;
  EXPECT_THAT(*BackendsFor(setup), ElementsAre("torch"));
}

}  // namespace
}  // namespace macaw::training
