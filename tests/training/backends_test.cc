// Which back end a run gets, what is said when it is missing, and how modules are loaded.
#include "training/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "models/named.h"
#include "models/spec.h"
#include "testing/temporary_folder.h"
#include "tests/training/testing.h"
#include "training/api/hooks.h"
#include "training/fused/isa.h"

namespace macaw::training {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TrainerSetup SetupOf(const std::vector<std::string>& layers, const std::string& backend,
                     DType dtype = DType::kF32) {
  TrainerSetup setup;
  setup.spec = SpecOf(layers, {1, 8, 8}, 3, dtype);
  setup.dtype = dtype;
  setup.backend.name = backend;
  return setup;
}

const std::vector<std::string> kDense = {"flatten", "linear 5", "relu", "linear 3"};
const std::vector<std::string> kNormed = {"conv 4 3", "groupnorm 2", "relu", "flatten", "linear 3"};

TrainerSetup WithHooks(TrainerSetup setup) {
  setup.hooks = true;
  return setup;
}

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(BackendsFor, TakesTheFusedOneWhereItCan) {
  const auto names = [](const TrainerSetup& setup) { return *BackendsFor(setup); };
  EXPECT_THAT(names(SetupOf(kDense, "auto")), ElementsAre("fused"));
  EXPECT_THAT(names(SetupOf(kDense, "fused")), ElementsAre("fused"));
  EXPECT_THAT(names(SetupOf(kDense, "torch")), ElementsAre("torch"));
  EXPECT_THAT(names(SetupOf(kDense, "./mine.so")), ElementsAre("./mine.so"));
  EXPECT_THAT(names(SetupOf(kNormed, "auto")), ElementsAre("torch"));
  EXPECT_THAT(names(SetupOf(kDense, "auto", DType::kF64)), ElementsAre("torch"));
  EXPECT_THAT(names(WithHooks(SetupOf(kDense, "auto"))), ElementsAre("fused", "torch"));
  EXPECT_THAT(names(WithHooks(SetupOf(kNormed, "auto"))), ElementsAre("torch"));
  EXPECT_THAT(names(WithHooks(SetupOf(kDense, "torch"))), ElementsAre("torch"));
}

TEST(BackendsFor, GivesTheSmallNamedModelsToTheFusedOne) {
  std::vector<std::string> fused, torch;
  for (const ModelConfig& config : models::ExampleConfigs()) {
    TrainerSetup setup;
    setup.spec = *models::BuildSpec(config, DType::kF32);
    if (setup.spec.takes_tokens()) setup.feature_type = data::FeatureType::kI32;
    (BackendsFor(setup)->front() == kFusedBackend ? fused : torch).push_back(config.name);
  }
  EXPECT_THAT(fused, ElementsAre("logistic", "mlp", "lenet5", "cnn", "simple_cnn"));
  EXPECT_THAT(torch, ElementsAre("resnet18", "resnet18_gn", "vgg11", "char_lstm", "char_gru",
                                 "char_transformer"));
}

TEST(BackendsFor, SaysWhyTheFusedOneCannot) {
  const auto error = [](const TrainerSetup& setup) { return ErrorOf(BackendsFor(setup).status()); };
  EXPECT_THAT(error(SetupOf(kNormed, "fused")), AllOf(HasSubstr("layer 2"), HasSubstr("\"auto\"")));
  EXPECT_THAT(error(SetupOf(kDense, "fused", DType::kF64)), HasSubstr("float32"));
  EXPECT_THAT(error(WithHooks(SetupOf(kDense, "fused"))), HasSubstr("hooks"));
  TrainerSetup clips = SetupOf(kDense, "fused");
  clips.local.clip_norm = 1;
  clips.local.clip = "corrected";
  EXPECT_THAT(error(clips), HasSubstr("local.clip = \"corrected\""));
  TrainerSetup script = SetupOf(kDense, "fused");
  script.spec.layers.clear();
  EXPECT_THAT(error(script), HasSubstr("scripted module"));
}

TEST(Backends, SayWhatIsMissingAndWhy) {
  const TemporaryFolder folder;
  Backends none(folder.path());
  EXPECT_EQ(none.CheckFor(SetupOf(kDense, "auto")), absl::OkStatus());
  const auto missing = [&](const TrainerSetup& setup) {
    const absl::Status status = none.CheckFor(setup);
    EXPECT_TRUE(IsMissingBackend(status)) << status;
    EXPECT_EQ(none.MakeTrainer(setup).status(), status);
    EXPECT_EQ(none.ProfileOf(setup).status(), status);
    return ErrorOf(status);
  };
  EXPECT_THAT(missing(SetupOf(kNormed, "auto")),
              AllOf(HasSubstr("layer 2"), HasSubstr("the package macaw-backend-torch")));
  EXPECT_THAT(missing(SetupOf(kDense, "auto", DType::kF64)), HasSubstr("float32"));
  EXPECT_THAT(missing(WithHooks(SetupOf(kDense, "auto"))), HasSubstr("hooks"));
  EXPECT_THAT(missing(SetupOf(kDense, "torch")), HasSubstr("workers.backend is \"torch\""));
  EXPECT_THAT(missing(SetupOf(kDense, folder / "mine.so")), HasSubstr("mine.so"));
  EXPECT_FALSE(IsMissingBackend(none.CheckFor(SetupOf(kNormed, "fused")))) << "a wrong key";
}

TEST(Backends, SayInABuildFolderThatDevFetchesLibTorch) {
  const TemporaryFolder folder;
  const Backends none(Backends::FolderBeside(folder / "bin"));
  const TrainerSetup setup = SetupOf(kNormed, "auto");
  EXPECT_THAT(ErrorOf(none.CheckFor(setup)), HasSubstr("the package macaw-backend-torch"));
  std::ofstream(folder / "CMakeCache.txt") << "";
  EXPECT_THAT(ErrorOf(none.CheckFor(setup)),
              AllOf(HasSubstr("./dev setup torch"), Not(HasSubstr("package"))));
}

TEST(Backends, ProfileIsOfTheTrainersThatRun) {
  Backends none("");
  const NumericProfile fused = *none.ProfileOf(SetupOf(kDense, "auto"));
  EXPECT_EQ(fused.trainer, "fused");
  EXPECT_EQ(fused.instruction_set, fused::Name(*fused::ChooseIsa("auto")));
  EXPECT_THAT(fused.libraries, AllOf(HasSubstr("macaw-fused 3"), HasSubstr("glibc 2.")));
  EXPECT_THAT(fused.libraries, Not(HasSubstr("libtorch"))) << "whether it is installed or not";
  EXPECT_EQ(*none.ProfileOf(SetupOf(kDense, "fused")), fused);
}

TEST(Backends, LoadAModuleOfSomebodyElse) {
  Backends backends("");
  const TrainerSetup setup = SetupOf(kDense, MACAW_OWN_BACKEND);
  EXPECT_EQ(backends.ProfileOf(setup)->libraries, "own 7");
  const auto trainer = backends.MakeTrainer(setup);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  EXPECT_EQ((*trainer)->name(), "fused");
  EXPECT_EQ(*backends.Find(MACAW_OWN_BACKEND), *backends.Find(MACAW_OWN_BACKEND)) << "loaded once";
  TrainerSetup other = setup;
  other.task = TaskKind::kRegression;
  EXPECT_THAT(ErrorOf(backends.MakeTrainer(other).status()), HasSubstr("classification only"));
}

TEST(Backends, RefuseAFileThatIsNoModule) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.so") << std::string(4096, 'x');
  Backends backends("");
  const absl::Status text = backends.Find(folder / "text.so").status();
  EXPECT_THAT(ErrorOf(text), AllOf(HasSubstr("text.so"), HasSubstr("invalid ELF header")));
  EXPECT_FALSE(IsMissingBackend(text));
  EXPECT_THAT(ErrorOf(backends.Find(MACAW_NO_BACKEND).status()), HasSubstr("it is no back end"));
}

TEST(Backends, ListWhatIsInstalled) {
  const TemporaryFolder folder;
  for (const char* name : {"libmacaw_torch.so", "libmacaw_cuda.so", "libother.so", "notes.txt"})
    std::ofstream(folder / name) << "";
  EXPECT_THAT(Backends(folder.path()).Installed(),
              ElementsAre("fused", "process", "cuda", "torch"));
  EXPECT_THAT(Backends("/no/such/folder").Installed(), ElementsAre("fused", "process"));
}

TEST(Backends, SayWhatTheOneForGpusNeeds) {
  const TemporaryFolder folder;
  Backends none(folder.path());
  const absl::Status missing = none.CheckFor(SetupOf(kDense, "cuda"));
  EXPECT_TRUE(IsMissingBackend(missing));
  EXPECT_THAT(ErrorOf(missing), AllOf(HasSubstr("workers.backend is \"cuda\""),
                                      HasSubstr("the package macaw-backend-cuda")));
  std::ofstream(folder / "CMakeCache.txt") << "";
  EXPECT_THAT(ErrorOf(Backends(Backends::FolderBeside(folder / "bin")).Missing("cuda", "")),
              HasSubstr("nvcc"));
  const absl::Status hooks = none.CheckFor(WithHooks(SetupOf(kDense, "cuda")));
  EXPECT_FALSE(IsMissingBackend(hooks));
  EXPECT_THAT(ErrorOf(hooks), HasSubstr("hooks"));
}

#ifdef MACAW_CUDA_MODULES
TEST(Backends, LoadTheOneForGpusWhereThereIsNone) {
  Backends backends(MACAW_CUDA_MODULES);
  const auto cuda = backends.Find("cuda");
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  EXPECT_EQ((*cuda)->name(), "cuda");
  EXPECT_TRUE((*cuda)->Supports(SetupOf(kDense, "cuda")).ok());
  EXPECT_THAT(ErrorOf(backends.MakeTrainer(SetupOf(kDense, "cuda", DType::kF64)).status()),
              HasSubstr("the back end cuda cannot train the run"));
  EXPECT_FALSE((*cuda)->Report().empty());
}
#endif

#ifdef MACAW_MODULES
// With the LibTorch module of this build.
class WithTorch : public testing::Test {
 protected:
  // Of a plan of one stage over twenty random rows.
  ConstVectorView End(LocalTrainer& trainer, const Stage& stage) {
    LocalPlan plan;
    plan.stages.push_back(stage);
    return MustRun(trainer, plan, TaskOf(examples_.Classes()))[0].end;
  }
  void ExpectSameAsTorch(const Stage& stage) {
    const TrainerSetup setup = SetupOf(kDense, "auto");
    const auto either = *backends_.MakeTrainer(setup);
    const auto torch = *(*backends_.Find("torch"))->MakeTrainer(setup);
    const ConstVectorView actual = End(*either, stage), expected = End(*torch, stage);
    EXPECT_EQ(std::memcmp(actual.bytes.data(), expected.bytes.data(), actual.bytes.size()), 0);
  }

  Backends backends_{MACAW_MODULES};
  const FlatVector start_ = models::InitialModel(SetupOf(kDense, "auto").spec, 2);
  const Examples examples_ = RandomExamples(20, 64, 3, 1);
};

TEST_F(WithTorch, TrainsWhatTheFusedOneCannot) {
  EXPECT_EQ((*backends_.MakeTrainer(SetupOf(kNormed, "auto")))->name(), "torch");
  EXPECT_EQ((*backends_.MakeTrainer(SetupOf(kDense, "auto", DType::kF64)))->name(), "torch");
  EXPECT_EQ((*backends_.MakeTrainer(SetupOf(kDense, "torch")))->name(), "torch");
  EXPECT_EQ((*backends_.MakeTrainer(SetupOf(kDense, "auto")))->name(), "fused");
}

TEST_F(WithTorch, ItsVersionIsInTheProfileOfARunWithHooks) {
  const std::string torch = backends_.ProfileOf(SetupOf(kNormed, "auto"))->libraries;
  EXPECT_THAT(torch, HasSubstr("libtorch 2."));
  const NumericProfile both = *backends_.ProfileOf(WithHooks(SetupOf(kDense, "auto")));
  EXPECT_EQ(both.trainer, "fused");
  EXPECT_THAT(both.libraries, AllOf(HasSubstr("macaw-fused"), HasSubstr(torch)));
}

TEST_F(WithTorch, GetsPlansWithHooks) {
  Hooks hooks;
  hooks.correct = [](ConstVectorView, VectorView gradient, StepGradients&) {
    for (float& g : gradient.As<float>()) g *= 2;
  };
  Stage stage = StageFrom(View(start_), 0.1);
  stage.hooks = std::make_shared<const Hooks>(hooks);
  ExpectSameAsTorch(stage);
}

TEST_F(WithTorch, GetsStagesThatClipGradientAndCorrectionTogether) {
  const FlatVector pull = models::InitialModel(SetupOf(kDense, "auto").spec, 3);
  Stage stage = StageFrom(View(start_), 0.1);
  stage.correction.v = {{.point = pull.view()}};
  stage.local.clip_norm = 0.01;
  stage.local.clip = "corrected";
  ExpectSameAsTorch(stage);
}

TEST_F(WithTorch, CountsEveryBatchAsWork) {
  WorkCounter work;
  TrainerSetup setup = SetupOf(kDense, "torch");
  setup.work = &work;
  const auto trainer = *backends_.MakeTrainer(setup);
  Stage stage = StageFrom(View(start_), 0.1);
  stage.local.batch_size = 10;
  (void)End(*trainer, stage);
  EXPECT_GE(work.done(), 2u) << "twenty rows in batches of ten";
}
#endif

}  // namespace
}  // namespace macaw::training
