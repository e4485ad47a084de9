// What the fused trainer promises besides its numbers: bits that depend on plan and task alone,
// ends that stay valid, and refusals with reasons.
#include "training/fused/fused_trainer.h"

#include <gmock/gmock.h>

#include "core/digest.h"
#include "tests/training/testing.h"
#include "training/api/hooks.h"

namespace macaw::training {
namespace {

using fused::Isa;
using testing::HasSubstr;

TrainerSetup SetupOf(const models::ModelSpec& spec, TaskKind task = TaskKind::kClassification) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.dtype = spec.layout->dtype();
  return setup;
}

models::ModelSpec Mlp(DType dtype = DType::kF32) {
  return SpecOf({"linear 33", "relu", "dropout 0.2", "linear 7"}, {19}, 7, dtype);
}

std::unique_ptr<LocalTrainer> FusedOf(const models::ModelSpec& spec, Isa isa) {
  auto trainer = fused::FusedTrainer::Make(SetupOf(spec), isa);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return trainer.ok() ? *std::move(trainer) : nullptr;
}

LocalPlan PlanFrom(const FlatVector& start, uint32_t batch) {
  LocalPlan plan;
  Stage stage;
  stage.start = View(start);
  stage.local.lr = 0.1;
  stage.local.batch_size = batch;
  stage.local.epochs = 2;
  stage.local.momentum = 0.5;
  plan.stages = {stage, stage};
  plan.stages[1].start = StageEnd{0};
  plan.stages[1].local.momentum = 0;
  plan.stages[1].correction.mu = 0.1;
  return plan;
}

std::vector<std::byte> BytesOf(const std::vector<StageOutcome>& outcomes) {
  std::vector<std::byte> bytes;
  for (const StageOutcome& outcome : outcomes) {
    const std::span<const std::byte> end = outcome.end.view().bytes;
    bytes.insert(bytes.end(), end.begin(), end.end());
    const auto sums = std::as_bytes(std::span(outcome.sums));
    bytes.insert(bytes.end(), sums.begin(), sums.end());
  }
  return bytes;
}

class FusedTrainerBits : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(OnEach, FusedTrainerBits, testing::ValuesIn(fused::SupportedIsas()),
                         [](const auto& info) { return std::string(fused::Name(info.param)); });

TEST_P(FusedTrainerBits, DependOnPlanAndTaskAlone) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4), other = models::InitialModel(spec, 5);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  const LocalPlan plan = PlanFrom(start, 10);
  const auto fresh = FusedOf(spec, GetParam());
  const std::vector<std::byte> expected =
      BytesOf(MustRun(*fresh, plan, TaskOf(examples.Classes())));

  // Rows stored elsewhere, without any alignment.
  const Examples shifted = RandomExamples(45, 19, 7, 1, /*shift=*/3);
  EXPECT_EQ(BytesOf(MustRun(*fresh, plan, TaskOf(shifted.Classes()))), expected);
  // A trainer that was used before, with larger batches, other points and an evaluation.
  const auto used = FusedOf(spec, GetParam());
  const Examples many = RandomExamples(200, 19, 7, 2);
  MustRun(*used, PlanFrom(other, 0), TaskOf(many.Classes()));
  ASSERT_TRUE(used->Evaluate(View(other), many.Classes(), 0, 200, 64).ok());
  EXPECT_EQ(BytesOf(MustRun(*used, plan, TaskOf(examples.Classes()))), expected);
  // The bits also depend on the client.
  ClientTask neighbour = TaskOf(examples.Classes());
  neighbour.client = ClientId(8);
  EXPECT_NE(BytesOf(MustRun(*used, plan, neighbour)), expected);
}

TEST_P(FusedTrainerBits, DoNotDependOnWhenAStageWasAddedToThePlan) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  const LocalPlan plan = PlanFrom(start, 10);
  const ClientTask task = TaskOf(examples.Classes());
  const auto trainer = FusedOf(spec, GetParam());
  const std::vector<std::byte> expected = BytesOf(MustRun(*trainer, plan, task));
  for (const size_t count : {0, 1, 2})
    EXPECT_EQ(BytesOf(MustRun(*trainer, AddedLater(plan, count), task)), expected) << count;
}

// Each sum of a linear layer is one chain of multiply-adds, so that its bits depend on one thing
// alone: whether these are fused. arm64's are, and it trains what AVX2 and AVX-512 train. Rows are
// uniform numbers, because libm's functions may differ between processors.
TEST_P(FusedTrainerBits, OfALinearLayerDependOnWhetherMultiplyAddsAreFused) {
  const models::ModelSpec spec = SpecOf({"linear 7"}, {19}, 7, DType::kF32);
  RandomStream stream({.seed = 3});
  std::vector<std::vector<double>> rows(45, std::vector<double>(19));
  std::vector<double> labels(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    labels[i] = static_cast<double>(i % 7);
    for (double& x : rows[i]) x = stream.Uniform() + (i % 7 == 0 ? 0.5 : 0.0);
  }
  const Examples examples(rows, labels, 0);
  const FlatVector start = models::InitialModel(spec, 4);
  const auto trainer = FusedOf(spec, GetParam());
  const std::vector<StageOutcome> ends =
      MustRun(*trainer, PlanFrom(start, 10), TaskOf(examples.Classes()));
  const bool apart = GetParam() == Isa::kPortable || GetParam() == Isa::kSse4;
  EXPECT_EQ(DigestOf(ends.back().end.view().bytes).Hex(),
            apart ? "bb06b6b8f9b09ee6dcbec373b85c961a41312b9a771a7246e7831011d4ce2e35"
                  : "cfa75977c309df81a6366cb0766c2e30db0e4b8e6bb9b2f641d5fbcae168391c");
}

TEST(FusedTrainer, SaysThatAnAddedStageNeedsLibTorch) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  LocalPlan plan = PlanFrom(start, 10);
  plan.stages[1].hooks = std::make_shared<const Hooks>();
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  const absl::Status status =
      trainer->Run(AddedLater(plan, 1), TaskOf(examples.Classes())).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"torch\""));
}

TEST_P(FusedTrainerBits, OfAnEvaluationAreThoseOfItsRows) {
  const models::ModelSpec spec = Mlp();
  const FlatVector model = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(150, 19, 7, 1);
  const auto trainer = FusedOf(spec, GetParam());
  const auto whole = trainer->Evaluate(View(model), examples.Classes(), 10, 150, 200);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(*trainer->Evaluate(View(model), examples.Classes(), 10, 150, 7), *whole);
  EXPECT_EQ((*whole)[0], 140);
}

TEST(FusedTrainer, KeepsTheEndOfEveryStageAndOfTheLastRun) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  const ClientTask task = TaskOf(examples.Classes());
  const auto both = MustRun(*trainer, PlanFrom(start, 10), task);
  const FlatVector first = FlatVector::CopyOf(both[0].end, spec.layout);
  const FlatVector second = FlatVector::CopyOf(both[1].end, spec.layout);
  LocalPlan alone = PlanFrom(start, 10);
  alone.stages.pop_back();
  EXPECT_EQ(std::memcmp(MustRun(*trainer, alone, task)[0].end.view().bytes.data(),
                        first.view().bytes.data(), first.view().bytes.size()),
            0);
  // A plan may start from where the last one ended, in the trainer's own memory.
  const auto again = MustRun(*trainer, PlanFrom(start, 10), task);
  LocalPlan onward = alone;
  onward.stages[0].start = again[1].end;
  LocalPlan from_copy = alone;
  from_copy.stages[0].start = View(second);
  const FlatVector end = FlatVector::CopyOf(MustRun(*trainer, onward, task)[0].end, spec.layout);
  EXPECT_EQ(std::memcmp(MustRun(*trainer, from_copy, task)[0].end.view().bytes.data(),
                        end.view().bytes.data(), end.view().bytes.size()),
            0);
}

TEST(FusedTrainer, LeavesFrozenTensorsAlone) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  LocalPlan plan = PlanFrom(start, 10);
  const std::vector<bool> trainable = {false, true, true, false};
  for (Stage& stage : plan.stages) {
    stage.trainable = std::make_shared<const std::vector<bool>>(trainable);
  }
  plan.stages[1].kind = StageKind::kGradient;
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Classes()));
  for (size_t i = 0; i < trainable.size(); ++i) {
    const LayoutEntry& entry = spec.layout->entries()[i];
    const auto values = [&](ConstVectorView v) {
      const auto tensor = v.As<float>().subspan(entry.offset, entry.size);
      return std::vector<float>(tensor.begin(), tensor.end());
    };
    EXPECT_EQ(values(outcomes[0].end) == values(View(start)), !trainable[i]) << i;
    EXPECT_EQ(values(outcomes[1].end) == std::vector<float>(entry.size), !trainable[i]) << i;
  }
}

// Without rows, neither uninitialised memory nor another client's numbers may be used.
TEST(FusedTrainer, GradientOfAClientWithoutRowsIsZeroOnAFreshTrainerAndOnAUsedOne) {
  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples many = RandomExamples(300, 19, 7, 1);  // more than one pass
  data::Rows none = many.Classes();
  none.block.count = 0;
  LocalPlan plan = PlanFrom(start, 10);
  plan.stages.pop_back();
  plan.stages[0].kind = StageKind::kGradient;
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  const std::vector<float> zeros(spec.layout->size());
  const auto gradient = [&](const data::Rows& rows) {
    const auto values = MustRun(*trainer, plan, TaskOf(rows))[0].end.As<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(gradient(none), zeros);
  const std::vector<float> whole = gradient(many.Classes());
  EXPECT_NE(whole, zeros);
  EXPECT_EQ(gradient(none), zeros);
  EXPECT_EQ(gradient(many.Classes()), whole);
}

// A diverged model is not an error here: it is refused where it is added, for every trainer alike.
TEST(FusedTrainer, TrainsOnWhenNumbersAreNotFinite) {
  const models::ModelSpec spec = SpecOf({"linear 7"}, {19}, 7, DType::kF32);
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(45, 19, 7, 1);
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  LocalPlan plan = PlanFrom(start, 10);
  plan.stages.pop_back();
  plan.stages[0].local.lr = 1e38;
  const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(examples.Classes()))[0];
  EXPECT_EQ(outcome.steps, 10u);
  EXPECT_TRUE(std::isnan(outcome.sums[1]) || std::isinf(outcome.sums[1]));
  EXPECT_FALSE(std::isfinite(outcome.end.As<float>()[0]));
}

TEST(FusedTrainer, SaysWhatItCannotDo) {
  const auto why = [](const TrainerSetup& setup) {
    return std::string(fused::Supports(setup).message());
  };
  EXPECT_THAT(why(SetupOf(Mlp(DType::kF64))), HasSubstr("float32"));
  EXPECT_THAT(why(SetupOf(SpecOf({"conv 4 3", "groupnorm 2", "flatten", "linear 2"}, {1, 8, 8}, 2,
                                 DType::kF32))),
              HasSubstr("layer 2"));
  TrainerSetup adam = SetupOf(Mlp());
  adam.local.optimizer = "adam";
  EXPECT_THAT(why(adam), HasSubstr("adam"));
  EXPECT_TRUE(fused::Supports(SetupOf(Mlp())).ok());

  const models::ModelSpec spec = Mlp();
  const FlatVector start = models::InitialModel(spec, 4);
  const Examples examples = RandomExamples(12, 19, 7, 1);
  const auto trainer = FusedOf(spec, fused::SupportedIsas().front());
  const auto error = [&](const LocalPlan& plan, const data::Rows& rows) {
    return std::string(trainer->Run(plan, TaskOf(rows)).status().message());
  };
  LocalPlan hooked = PlanFrom(start, 10);
  hooked.stages[1].hooks = std::make_shared<const Hooks>();
  EXPECT_THAT(error(hooked, examples.Classes()), HasSubstr("hooks"));
  LocalPlan clipped = PlanFrom(start, 10);
  clipped.stages[1].local.clip_norm = 1;
  clipped.stages[1].local.clip = "corrected";
  EXPECT_THAT(error(clipped, examples.Classes()), HasSubstr("clip = \"corrected\""));
  clipped.stages[1].local.clip_norm = 0;  // nothing is clipped
  EXPECT_TRUE(trainer->Run(clipped, TaskOf(examples.Classes())).ok());
  EXPECT_THAT(error(PlanFrom(start, 10), examples.Targets()), HasSubstr("classes"));
  EXPECT_THAT(error(PlanFrom(start, 10), RandomExamples(12, 18, 7, 1).Classes()),
              HasSubstr("input shape"));
  EXPECT_THAT(error(PlanFrom(start, 10), RandomExamples(12, 19, 9, 1).Classes()),
              HasSubstr("the model knows 0 to 6"));
  const models::ModelSpec narrow = SpecOf({"linear 7"}, {19}, 7, DType::kF32);
  EXPECT_THAT(error(PlanFrom(FlatVector(narrow.layout), 10), examples.Classes()),
              HasSubstr("layout"));
  LocalPlan forward = PlanFrom(start, 10);
  forward.stages[0].start = StageEnd{1};
  EXPECT_THAT(error(forward, examples.Classes()), HasSubstr("stage 1"));
  LocalPlan none = PlanFrom(start, 50);
  none.stages[0].local.drop_last = true;
  none.stages[0].local.steps = 3;
  EXPECT_THAT(error(none, examples.Classes()), HasSubstr("12 rows make no batch of 50"));
  EXPECT_FALSE(trainer->Evaluate(View(start), examples.Classes(), 3, 13, 5).ok());
}

}  // namespace
}  // namespace macaw::training
