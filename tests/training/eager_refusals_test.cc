#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/training/testing.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Refused {
  models::ModelSpec spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
  Examples examples = RandomExamples(6, 4, 3, 1);
  FlatVector x = models::InitialModel(spec, 1);
  std::unique_ptr<LocalTrainer> trainer = TrainerOf(spec, TaskKind::kClassification);

  std::string Run(const std::function<void(Stage&)>& change, const data::Rows& rows) {
    LocalPlan plan;
    plan.stages.push_back(StageFrom(View(x), 0.1));
    change(plan.stages[0]);
    return std::string(trainer->Run(plan, TaskOf(rows)).status().message());
  }
  std::string Run(const std::function<void(Stage&)>& change) {
    return Run(change, examples.Classes());
  }
};

TEST(EagerTrainer, RefusesInvalidPlans) {
  Refused r;
  EXPECT_EQ(r.Run([](Stage&) {}), "");
  EXPECT_THAT(r.Run([](Stage& s) { s.start = StageEnd{0}; }),
              StartsWith("client 7: stage 0: refers to the end of stage 0, which has none"));
  EXPECT_THAT(r.Run([](Stage& s) { s.start = ConstVectorView(); }), HasSubstr("the start vector"));
  const models::ModelSpec wide = SpecOf({"linear 3"}, {5}, 3, DType::kF32);
  const FlatVector other(wide.layout);
  EXPECT_THAT(r.Run([&](Stage& s) { s.start = View(other); }),
              HasSubstr("start vector has another layout than model \"layers\""));
  EXPECT_THAT(r.Run([&](Stage& s) { s.correction = {.mu = 1, .anchor = View(other)}; }),
              HasSubstr("the anchor vector has another layout"));
  EXPECT_THAT(r.Run([&](Stage& s) {
    s.correction.v = {{.point = s.start}, {.point = View(other)}};
  }),
              HasSubstr("the correction v[1] vector has another layout"));
  EXPECT_THAT(r.Run([](Stage& s) { s.correction.v = {{.point = StageEnd{0}}}; }),
              HasSubstr("the end of stage 0, which has none"));
  EXPECT_THAT(r.Run([](Stage& s) { s.local.optimizer = "lamb"; }), HasSubstr("got \"lamb\""));
  EXPECT_THAT(r.Run([](Stage& s) { s.local.class_weights = {1}; }),
              HasSubstr("local.class_weights has 1 numbers"));
  EXPECT_THAT(
      r.Run([](Stage& s) { s.trainable = std::make_shared<const std::vector<bool>>(5, true); }),
      HasSubstr("names 5 trainable tensors, the model has 2"));
}

TEST(EagerTrainer, RefusesRowsThatDoNotFit) {
  Refused r;
  const Examples wide = RandomExamples(6, 5, 3, 1);
  const Examples four = RandomExamples(6, 4, 4, 1);
  const auto nothing = [](Stage&) {};
  EXPECT_THAT(r.Run(nothing, wide.Classes()), HasSubstr("has 20 bytes, the model takes 16"));
  EXPECT_THAT(r.Run(nothing, four.Classes()), HasSubstr("label 3, the model knows 0 to 2"));
  EXPECT_THAT(r.Run(nothing, r.examples.Targets()), HasSubstr("the task needs classes"));
  const auto many = [](Stage& s) {
    s.local.steps = 5;
    s.local.batch_size = 7;
    s.local.drop_last = true;
  };
  EXPECT_THAT(r.Run(many), HasSubstr("6 rows make no batch of 7 (local.drop_last)"));
  EXPECT_THAT(
      std::string(r.trainer->Evaluate(View(r.x), r.examples.Classes(), 4, 9, 2).status().message()),
      HasSubstr("rows 4 to 9 of 6"));
}

TEST(EagerTrainer, GoesOnWhenALossIsNotFinite) {
  Refused r;
  r.x.As<float>()[0] = NAN;
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(r.x), 0.1));
  plan.stages[0].local.epochs = 5;
  const auto outcome = MustRun(*r.trainer, plan, TaskOf(r.examples.Classes()))[0];
  EXPECT_EQ(outcome.steps, 5u);
  EXPECT_TRUE(std::isnan(outcome.end.As<float>()[0]));
  EXPECT_TRUE(std::isnan(outcome.sums[1]));
  EXPECT_EQ(outcome.sums[2], 0);  // none is correct
}

TEST(TorchBackend, RefusesUnsupportedSetups) {
  TrainerSetup setup;
  setup.spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
  setup.backend = TorchChoice();
  const auto error = [](const TrainerSetup& s) {
    return std::string(TorchBackend().MakeTrainer(s).status().message());
  };
  EXPECT_EQ(error(setup), "");
  TrainerSetup wrong = setup;
  wrong.dtype = DType::kF64;
  EXPECT_THAT(error(wrong), HasSubstr("another dtype"));
  wrong = setup;
  wrong.task = TaskKind::kBinary;
  EXPECT_THAT(error(wrong), HasSubstr("one output, not 3"));
  wrong = setup;
  wrong.feature_type = data::FeatureType::kI32;
  EXPECT_THAT(error(wrong), HasSubstr("tokens"));
}

}  // namespace
}  // namespace macaw::training
