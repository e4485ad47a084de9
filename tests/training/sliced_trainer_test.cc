// Plans on a part of the model: which trainer gets them, the scaler, and masked classes.
#include "training/sliced_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/testing.h"
#include "training/backends.h"

namespace macaw::training {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TrainerSetup SlicedSetup() {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 6", "relu", "linear 3"}, {4}, 3, DType::kF32);
  setup.slices = true;
  setup.backend.name = "fused";
  return setup;
}

std::unique_ptr<LocalTrainer> Sliced(const TrainerSetup& setup) {
  return *Backends("").MakeTrainer(setup);
}

Stage StageOf(ConstVectorView start, models::Width width) {
  Stage stage = StageFrom(start, 0.2);
  stage.local.batch_size = 5;
  stage.width = width;
  return stage;
}

FlatVector SliceIn(const models::ModelSpec& spec, const FlatVector& model) {
  FlatVector slice(spec.layout);
  models::ExtractSlice(model.view(), slice.view());
  return slice;
}

TEST(SlicedTrainer, TrainsTheNarrowerModel) {
  const TrainerSetup setup = SlicedSetup();
  const auto trainer = Sliced(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = RandomExamples(17, 4, 3, 3);
  for (const double rate : {0.5, 1.0, 0.25, 0.5}) {
    TrainerSetup alone = setup;
    alone.slices = false;
    alone.spec = *models::SliceOf(setup.spec, {.rate = rate});
    const auto narrow = *FusedBackend().MakeTrainer(alone);
    const FlatVector slice = SliceIn(alone.spec, model);
    const LocalPlan plan{{StageOf(slice.view(), {.rate = rate})}},
        same{{StageOf(slice.view(), {})}};
    const auto found = trainer->Run(plan, TaskOf(examples.Classes()));
    const auto expected = narrow->Run(same, TaskOf(examples.Classes()));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(DigestOfValues(found->front().end), DigestOfValues(expected->front().end));
    EXPECT_NE(DigestOfValues(found->front().end), DigestOfValues(slice.view()));
  }
}

// relu(2(Wx + b)) = 2·relu(Wx + b), and a factor of 2 rounds nothing.
TEST(SlicedTrainer, TheScalerDividesHiddenOutputsByTheRate) {
  const TrainerSetup setup = SlicedSetup();
  const auto trainer = Sliced(setup);
  const models::ModelSpec narrow = *models::SliceOf(setup.spec, {.rate = 0.5});
  const FlatVector slice = SliceIn(narrow, models::InitialModel(setup.spec, 7));
  FlatVector doubled = slice.Clone();
  for (size_t e = 0; e < 2; ++e) {
    const LayoutEntry& entry = narrow.layout->entries()[e];
    for (float& w : doubled.As<float>().subspan(entry.offset, entry.size)) w *= 2;
  }
  const Examples examples = RandomExamples(17, 4, 3, 3);
  const auto loss = [&](const FlatVector& at, bool scaled) {
    Stage stage = StageOf(at.view(), {.rate = 0.5, .scaled = scaled});
    stage.kind = StageKind::kLoss;
    return trainer->Run(LocalPlan{{stage}}, TaskOf(examples.Classes()))->front().sums[1];
  };
  EXPECT_EQ(loss(slice, true), loss(doubled, false));
  EXPECT_NE(loss(slice, true), loss(slice, false));
  const auto gradient = [&](const FlatVector& at, bool scaled) {
    Stage stage = StageOf(at.view(), {.rate = 0.5, .scaled = scaled});
    stage.kind = StageKind::kGradient;
    auto outcomes = trainer->Run(LocalPlan{{stage}}, TaskOf(examples.Classes()));
    return FlatVector::CopyOf(outcomes->front().end, narrow.layout);
  };
  // By the chain rule the first layer's gradient has the factor, too; the last one's has not.
  const FlatVector scaled = gradient(slice, true), plain = gradient(doubled, false);
  for (size_t e = 0; e < 4; ++e) {
    const LayoutEntry& entry = narrow.layout->entries()[e];
    for (size_t i = entry.offset; i < entry.offset + entry.size; ++i)
      EXPECT_EQ(scaled.As<float>()[i], (e < 2 ? 2 : 1) * plain.As<float>()[i]) << entry.name;
  }
}

TEST(SlicedTrainer, RefusesAPlanOfSeveralWidths) {
  const TrainerSetup setup = SlicedSetup();
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = RandomExamples(5, 4, 3, 3);
  const LocalPlan plan{{StageOf(model.view(), {}), StageOf(model.view(), {.rate = 0.5})}};
  EXPECT_THAT(std::string(Sliced(setup)->Run(plan, TaskOf(examples.Classes())).status().message()),
              HasSubstr("different widths"));
}

TEST(SlicedTrainer, IsNotForBackEndsOfOneModel) {
  for (const std::string backend : {"cuda", "process"}) {
    TrainerSetup setup = SlicedSetup();
    setup.backend.name = backend;
    setup.backend.program.command = {"true"};
    EXPECT_THAT(std::string(BackendsFor(setup).status().message()),
                HasSubstr("trains slices of the model"));
  }
}

// Rows of classes 0 and 2 of three.
Examples TwoClasses() {
  return {{{1, 0, 2, -1}, {0, 1, -1, 1}, {2, 1, 0, 0}, {-1, 2, 1, 1}}, {0, 2, 2, 0}};
}

TEST(MaskedClasses, CountAsZeroAndStay) {
  TrainerSetup setup = SlicedSetup();
  const auto trainer = Sliced(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = TwoClasses();
  Stage stage = StageOf(model.view(), {});
  stage.masks_classes = true;
  const auto outcome = trainer->Run(LocalPlan{{stage}}, TaskOf(examples.Classes()));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->front().classes, ElementsAre(true, false, true));
  const ConstVectorView end = outcome->front().end;
  const LayoutEntry &weight = setup.spec.layout->entries()[2],
                    &bias = setup.spec.layout->entries()[3];
  for (size_t c = 0; c < 3; ++c) {
    const bool moved = end.As<float>()[bias.offset + c] != model.As<float>()[bias.offset + c];
    EXPECT_EQ(moved, c != 1);
    for (size_t k = 0; k < 6 && c == 1; ++k) {
      EXPECT_EQ(end.As<float>()[weight.offset + 6 + k], model.As<float>()[weight.offset + 6 + k]);
    }
  }
  // Whatever the absent class's output is, the loss is that of 0.
  stage.kind = StageKind::kLoss;
  const auto loss = [&](float of_class_1) {
    FlatVector at = model.Clone();
    for (size_t k = 0; k < 6; ++k) at.As<float>()[weight.offset + 6 + k] = of_class_1;
    at.As<float>()[bias.offset + 1] = of_class_1;
    stage.start = at.view();
    return trainer->Run(LocalPlan{{stage}}, TaskOf(examples.Classes()))->front().sums[1];
  };
  EXPECT_EQ(loss(0), loss(9));
  stage.masks_classes = false;
  EXPECT_NE(loss(0), loss(9));
}

TEST(MaskedClasses, OfRowsOfAllClassesChangeNothing) {
  const TrainerSetup setup = SlicedSetup();
  const auto trainer = Sliced(setup);
  const FlatVector model = models::InitialModel(setup.spec, 7);
  const Examples examples = RandomExamples(9, 4, 3, 3);
  Stage stage = StageOf(model.view(), {});
  const auto run = [&] {
    const auto outcomes = trainer->Run(LocalPlan{{stage}}, TaskOf(examples.Classes()));
    EXPECT_TRUE(outcomes->front().classes.empty());
    return DigestOfValues(outcomes->front().end);
  };
  const Digest plain = run();
  stage.masks_classes = true;
  EXPECT_EQ(run(), plain);
}

}  // namespace
}  // namespace macaw::training
