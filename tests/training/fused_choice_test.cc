// Which trainer a run gets, and what its profile says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/training/testing.h"
#include "training/api/hooks.h"
#include "training/fused/fused_trainer.h"
#include "training/fused/isa.h"
#include "training/make_trainer.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

TrainerSetup SetupOf(const std::vector<std::string>& layers, const std::string& trainer,
                     DType dtype = DType::kF32) {
  TrainerSetup setup;
  setup.spec = SpecOf(layers, {1, 8, 8}, 3, dtype);
  setup.dtype = dtype;
  setup.local.trainer = trainer;
  return setup;
}

const std::vector<std::string> kDense = {"flatten", "linear 5", "relu", "linear 3"};
const std::vector<std::string> kNormed = {"conv 4 3", "groupnorm 2", "relu", "flatten", "linear 3"};

TEST(TrainerChoice, TakesTheFusedOneWhereItCan) {
  const auto name = [](const TrainerSetup& setup) { return (*MakeTrainer(setup))->name(); };
  EXPECT_EQ(name(SetupOf(kDense, "auto")), "fused");
  EXPECT_EQ(name(SetupOf(kDense, "fused")), "fused");
  EXPECT_EQ(name(SetupOf(kDense, "eager")), "eager");
  EXPECT_EQ(name(SetupOf(kNormed, "auto")), "eager");
  EXPECT_EQ(name(SetupOf(kDense, "auto", DType::kF64)), "eager");
}

TEST(TrainerChoice, PrefersATensorLibraryToPortableCodeOnLargerNetworks) {
  const TrainerSetup small = SetupOf(kDense, "auto");
  const TrainerSetup large = SetupOf({"flatten", "linear 2000", "relu", "linear 3"}, "auto");
  for (const fused::Isa isa : {fused::Isa::kAvx512, fused::Isa::kAvx2, fused::Isa::kSse4,
                               fused::Isa::kNeon, fused::Isa::kPortable}) {
    EXPECT_TRUE(fused::Prefers(small, isa).ok()) << fused::Name(isa);
    EXPECT_EQ(fused::Prefers(large, isa).ok(), isa != fused::Isa::kPortable) << fused::Name(isa);
  }
}

TEST(TrainerChoice, SaysWhyTheFusedOneCannot) {
  const auto error = [](const TrainerSetup& setup) {
    return std::string(MakeTrainer(setup).status().message());
  };
  EXPECT_THAT(error(SetupOf(kNormed, "fused")),
              testing::AllOf(HasSubstr("layer 2"), HasSubstr("\"auto\"")));
  EXPECT_THAT(error(SetupOf(kDense, "fused", DType::kF64)), HasSubstr("float32"));
  TrainerSetup clips = SetupOf(kDense, "fused");
  clips.local.clip_norm = 1;
  clips.local.clip = "corrected";
  EXPECT_THAT(error(clips), HasSubstr("local.clip = \"corrected\""));
  TrainerSetup script = SetupOf(kDense, "fused");
  script.spec.layers.clear();
  EXPECT_THAT(error(script), HasSubstr("scripted module"));
}

TEST(TrainerChoice, ProfileIsOfTheTrainerThatRuns) {
  const std::string isa(fused::Name(*fused::ChooseIsa("auto")));
  const NumericProfile fused = ProfileOf(SetupOf(kDense, "fused"));
  EXPECT_EQ(fused.trainer, "fused");
  EXPECT_EQ(fused.instruction_set, isa);
  EXPECT_THAT(fused.libraries, HasSubstr("macaw-fused 2"));
  EXPECT_THAT(fused.libraries, testing::Not(HasSubstr("libtorch")));
  // Plans with hooks fall to LibTorch, so its version is part of what "auto" depends on.
  const NumericProfile either = ProfileOf(SetupOf(kDense, "auto"));
  EXPECT_EQ(either.trainer, "fused");
  EXPECT_THAT(either.libraries, HasSubstr(EagerProfile().libraries));
  EXPECT_EQ(ProfileOf(SetupOf(kDense, "eager")), EagerProfile());
  EXPECT_EQ(ProfileOf(SetupOf(kNormed, "auto")), EagerProfile());
}

TEST(TrainerChoice, GivesPlansWithHooksToTheEagerOne) {
  const TrainerSetup setup = SetupOf(kDense, "auto");
  const FlatVector start = models::InitialModel(setup.spec, 2);
  const Examples examples = RandomExamples(20, 64, 3, 1);
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(start), 0.1));
  Hooks hooks;
  hooks.correct = [](ConstVectorView, VectorView gradient, StepGradients&) {
    for (float& g : gradient.As<float>()) g *= 2;
  };
  plan.stages[0].hooks = std::make_shared<const Hooks>(hooks);
  const auto either = *MakeTrainer(setup);
  const auto eager = *MakeEagerTrainer(setup);
  const ClientTask task = TaskOf(examples.Classes());
  const ConstVectorView actual = MustRun(*either, plan, task)[0].end;
  const ConstVectorView expected = MustRun(*eager, plan, task)[0].end;
  EXPECT_EQ(std::memcmp(actual.bytes.data(), expected.bytes.data(), actual.bytes.size()), 0);

  TrainerSetup strict = setup;
  strict.local.trainer = "fused";
  EXPECT_THAT(std::string((*MakeTrainer(strict))->Run(plan, task).status().message()),
              HasSubstr("hooks"));
}

TEST(TrainerChoice, GivesAStageThatClipsGradientAndCorrectionTogetherToTheEagerOne) {
  const TrainerSetup setup = SetupOf(kDense, "auto");
  const FlatVector start = models::InitialModel(setup.spec, 2);
  const FlatVector pull = models::InitialModel(setup.spec, 3);
  const Examples examples = RandomExamples(20, 64, 3, 1);
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(start), 0.1));
  plan.stages[0].correction.v = {{.point = View(pull)}};
  plan.stages[0].local.clip_norm = 0.01;
  plan.stages[0].local.clip = "corrected";
  const ClientTask task = TaskOf(examples.Classes());
  const auto either = *MakeTrainer(setup);
  const auto eager = *MakeEagerTrainer(setup);
  const ConstVectorView actual = MustRun(*either, plan, task)[0].end;
  const ConstVectorView expected = MustRun(*eager, plan, task)[0].end;
  EXPECT_EQ(std::memcmp(actual.bytes.data(), expected.bytes.data(), actual.bytes.size()), 0);
}

}  // namespace
}  // namespace macaw::training
