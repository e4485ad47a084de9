#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/testing.h"
#include "training/hooks.h"

namespace macaw::training {
namespace {

using Vec = std::vector<double>;

// Mime (Karimireddy et al. 2021): phase 1 gives c = ∇f(x); the steps of phase 2 use g(y; ζ) − g(x;
// ζ) + c with the same minibatch ζ twice.
TEST(MimeSketch, PairsGradientsOfTheSameBatch) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec start = {0.5, -0.25, 0.125};
  const FlatVector x = PointOf(spec, start);
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  ClientTask task = TaskOf(examples.Targets());

  LocalPlan first;
  first.stages = {StageFrom(View(x), 0)};
  first.stages[0].kind = StageKind::kGradient;
  const FlatVector c = FlatVector::CopyOf(MustRun(*trainer, first, task)[0].end, spec.layout);

  auto hooks = std::make_shared<Hooks>();
  hooks->correct = [&](ConstVectorView, VectorView g, StepGradients& batch) {
    const ConstVectorView at_x = batch.GradientAt(View(x));
    for (size_t i = 0; i < g.size(); ++i) {
      g.As<double>()[i] += c.As<double>()[i] - at_x.As<double>()[i];
    }
  };
  LocalPlan second;
  second.stages = {StageFrom(View(x), 0.1)};
  second.stages[0].local.batch_size = 2;
  second.stages[0].local.epochs = 3;
  second.stages[0].hooks = hooks;
  task.phase = Phase(1);
  const auto outcomes = MustRun(*trainer, second, task);

  Vec y = start;
  const Vec full = line.Gradient(start);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 4), std::pair(4, 5)}) {
      const Vec at_y = line.Gradient(y, begin, end), at_x = line.Gradient(start, begin, end);
      for (int k = 0; k < 3; ++k) y[k] -= 0.1 * (at_y[k] - at_x[k] + full[k]);
    }
  }
  ExpectPoint(outcomes[0].end, y);
}

TEST(CorrectHook, SeesTheClippedGradientBeforeTheCorrection) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector x = PointOf(spec, {0.5, -0.25, 0.125});
  double norm = 0;
  auto hooks = std::make_shared<Hooks>();
  hooks->correct = [&](ConstVectorView w, VectorView g, StepGradients&) {
    EXPECT_EQ(w.As<double>()[0], 0.5);
    for (double& value : g.As<double>()) {
      norm += value * value;
      value = 0;
    }
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  plan.stages[0].local.clip_norm = 0.25;
  plan.stages[0].local.weight_decay = 1;
  plan.stages[0].hooks = hooks;
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  EXPECT_NEAR(std::sqrt(norm), 0.25, 1e-14);
  ExpectPoint(outcomes[0].end, {0.45, -0.225, 0.1125});  // the decay alone
}

TEST(LossHook, ReplacesTheTasksLossAndIsReported) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const Vec start = {0.5, -0.25, 0.125};
  const FlatVector x = PointOf(spec, start);
  auto hooks = std::make_shared<Hooks>();
  // Three times the squared error, plus w₀².
  hooks->loss = [](const models::Outputs& outputs, StepBatch& batch,
                   std::span<const at::Tensor> w) {
    EXPECT_EQ(batch.features().size(0), outputs.logits.size(0));
    EXPECT_TRUE(at::equal(outputs.representation, batch.features()));
    return 3 * (outputs.logits.flatten() - batch.labels()).pow(2).mean() +
           w[0].flatten().select(0, 0).pow(2);
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1), StageFrom(View(x), 0.1), StageFrom(View(x), 0.1)};
  plan.stages[1].kind = StageKind::kGradient;
  plan.stages[2].kind = StageKind::kLoss;
  for (Stage& stage : plan.stages) stage.hooks = hooks;
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Targets()));
  Vec g = line.Gradient(start);
  for (double& value : g) value *= 3;
  g[0] += 2 * start[0];
  ExpectPoint(outcomes[0].end, {0.5 - 0.1 * g[0], -0.25 - 0.1 * g[1], 0.125 - 0.1 * g[2]});
  ExpectPoint(outcomes[1].end, g);
  const double loss = 3 * line.Loss(start) + 0.25;
  EXPECT_NEAR(outcomes[0].sums[1] / 5, loss, 1e-14);
  EXPECT_NEAR(outcomes[2].sums[1] / 5, loss, 1e-14);
  EXPECT_EQ(outcomes[0].sums[0], 5);
}

// Distillation: the teacher's outputs on the same batch, outside the graph.
TEST(LossHook, MayAskATeacher) {
  const models::ModelSpec spec = SpecOf({"linear 3"}, {4}, 3, DType::kF64);
  const Examples examples = RandomExamples(12, 4, 3, 1);
  const FlatVector x = models::InitialModel(spec, 1), teacher = models::InitialModel(spec, 2);
  auto hooks = std::make_shared<Hooks>();
  hooks->loss = [&](const models::Outputs& outputs, StepBatch& batch, std::span<const at::Tensor>) {
    const at::Tensor wish = batch.OutputsAt(View(teacher)).logits;
    EXPECT_FALSE(wish.requires_grad());
    return (outputs.logits - wish).pow(2).mean();
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.5), StageFrom(StageEnd{0}, 0)};
  plan.stages[0].local.epochs = 300;
  plan.stages[1].kind = StageKind::kLoss;
  for (Stage& stage : plan.stages) stage.hooks = hooks;
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Classes()));
  EXPECT_LT(outcomes[1].sums[1] / 12, 0.05 * outcomes[0].sums[1] / outcomes[0].sums[0] + 1e-3);
}

// The same loss twice: by a hook that writes its gradient by hand, beside the task's own, and by
// one that autograd differentiates.
TEST(RepresentationHook, IsAddedToTheTasksLoss) {
  const models::ModelSpec spec = SpecOf({"linear 5", "tanh", "linear 3"}, {4}, 3, DType::kF64);
  const Examples examples = RandomExamples(11, 4, 3, 1);
  const FlatVector x = models::InitialModel(spec, 1), other = models::InitialModel(spec, 2),
                   third = models::InitialModel(spec, 3);
  auto by_hand = std::make_shared<Hooks>();
  by_hand->representations = [](const Representations& z, std::span<double> gradient) {
    EXPECT_EQ(z.width, 5u);
    EXPECT_EQ(z.own.size(), z.rows * z.width);
    EXPECT_EQ(z.references.size(), 2u);
    double sum = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double apart = z.own[i] - 0.5 * z.references[0][i] + z.references[1][i];
      sum += 0.3 * apart * apart;
      gradient[i] = 0.6 * apart;
    }
    return sum;
  };
  auto by_autograd = std::make_shared<Hooks>();
  by_autograd->loss = [&](const models::Outputs& outputs, StepBatch& batch,
                          std::span<const at::Tensor>) {
    const at::Tensor apart = outputs.representation -
                             0.5 * batch.OutputsAt(View(other)).representation +
                             batch.OutputsAt(View(third)).representation;
    return at::cross_entropy_loss(outputs.logits, batch.labels()) +
           0.3 * apart.pow(2).sum(1).mean();
  };
  const auto plan_with = [&](std::shared_ptr<const Hooks> hooks, uint32_t micro_batch) {
    LocalPlan plan;
    plan.stages = {StageFrom(View(x), 0.1), StageFrom(View(x), 0.1), StageFrom(View(x), 0.1)};
    plan.stages[1].kind = StageKind::kGradient;
    plan.stages[2].kind = StageKind::kLoss;
    for (Stage& stage : plan.stages) {
      stage.hooks = hooks;
      stage.references = {View(other), View(third)};
      stage.local.batch_size = 4;  // the last one of three rows
      stage.local.epochs = 2;
      stage.local.micro_batch = micro_batch;
    }
    return plan;
  };
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const ClientTask task = TaskOf(examples.Classes());
  const auto kept = [&](const std::vector<StageOutcome>& outcomes) {
    std::vector<Vec> found;
    for (size_t i = 0; i < 2; ++i) {
      const std::span<const double> end = outcomes[i].end.view().As<double>();
      found.emplace_back(end.begin(), end.end());
    }
    for (const StageOutcome& outcome : outcomes) found.push_back({outcome.sums[1]});
    return found;
  };
  const std::vector<Vec> expected = kept(MustRun(*trainer, plan_with(by_autograd, 0), task));
  for (const uint32_t micro_batch : {0u, 3u}) {
    const std::vector<Vec> found = kept(MustRun(*trainer, plan_with(by_hand, micro_batch), task));
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_THAT(found[i], testing::Pointwise(testing::DoubleNear(1e-12), expected[i])) << i;
  }
  // And it is no small part of it.
  LocalPlan plain = plan_with(nullptr, 0);
  for (Stage& stage : plain.stages) stage.references.clear();
  EXPECT_GT(std::abs(kept(MustRun(*trainer, plain, task))[0][0] - expected[0][0]), 1e-3);
}

TEST(RepresentationHook, IsRefusedWhereItCannotBeCarriedOut) {
  const models::ModelSpec spec = SpecOf({"linear 5", "linear 3"}, {4}, 3, DType::kF64);
  const models::ModelSpec smaller = SpecOf({"linear 2", "linear 3"}, {4}, 3, DType::kF64);
  const Examples examples = RandomExamples(6, 4, 3, 1);
  const FlatVector x = models::InitialModel(spec, 1), short_one = models::InitialModel(smaller, 1);
  Hooks hooks;
  hooks.representations = [](const Representations&, std::span<double>) { return 0.0; };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1)};
  plan.stages[0].hooks = std::make_shared<const Hooks>(hooks);
  plan.stages[0].references = {View(short_one)};
  const auto trainer = TrainerOf(spec, TaskKind::kClassification);
  const auto refused = [&] {
    return std::string(trainer->Run(plan, TaskOf(examples.Classes())).status().message());
  };
  EXPECT_THAT(refused(), testing::HasSubstr("the reference 0 vector has another layout"));
  plan.stages[0].references = {View(x)};
  EXPECT_EQ(refused(), "");
  hooks.loss = [](const models::Outputs& outputs, StepBatch&, std::span<const at::Tensor>) {
    return outputs.logits.sum();
  };
  plan.stages[0].hooks = std::make_shared<const Hooks>(hooks);
  EXPECT_THAT(refused(), testing::HasSubstr("a loss of its own and one on representations"));
}

TEST(Hooks, SeeTheSameDropoutMasksInAPairedGradient) {
  const models::ModelSpec spec = SpecOf({"dropout 0.5", "linear 3"}, {40}, 3, DType::kF64);
  const Examples examples = RandomExamples(6, 40, 3, 1);
  const FlatVector x = models::InitialModel(spec, 1);
  size_t calls = 0;
  auto hooks = std::make_shared<Hooks>();
  hooks->correct = [&](ConstVectorView w, VectorView g, StepGradients& batch) {
    ++calls;
    const ConstVectorView again = batch.GradientAt(w);
    EXPECT_EQ(std::memcmp(again.bytes.data(), g.bytes.data(), g.bytes.size()), 0);
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.5)};
  plan.stages[0].local.epochs = 2;
  plan.stages[0].hooks = hooks;
  MustRun(*TrainerOf(spec, TaskKind::kClassification), plan, TaskOf(examples.Classes()));
  EXPECT_EQ(calls, 2u);
}

TEST(Hooks, MoveTheStatisticsOfAModelOfTheirOwn) {
  const models::ModelSpec spec =
      SpecOf({"linear 4", "batchnorm", "tanh", "linear 2"}, {3}, 2, DType::kF64);
  const Examples examples = RandomExamples(6, 3, 2, 8);
  const FlatVector x = models::InitialModel(spec, 5);
  const auto bytes = [](ConstVectorView v, Group group) {
    std::vector<double> numbers;
    for (const LayoutEntry& entry : v.layout->entries()) {
      if (entry.group != group) continue;
      const auto values = v.As<double>().subspan(entry.offset, entry.size);
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
    return numbers;
  };
  size_t calls = 0;
  auto hooks = std::make_shared<Hooks>();
  hooks->correct = [&](ConstVectorView w, VectorView, StepGradients& batch) {
    ++calls;
    FlatVector own = x.Clone();
    const FlatVector plain = FlatVector::CopyOf(batch.GradientAt(View(own)), spec.layout);
    EXPECT_EQ(bytes(View(own), Group::kBuffer), bytes(View(x), Group::kBuffer));
    const ConstVectorView gradient = batch.GradientAtOwn(own.view());
    EXPECT_EQ(bytes(gradient, Group::kParameter), bytes(View(plain), Group::kParameter));
    EXPECT_EQ(bytes(View(own), Group::kParameter), bytes(View(x), Group::kParameter));
    // The step's own pass was at x, too.
    EXPECT_EQ(bytes(View(own), Group::kBuffer), bytes(w, Group::kBuffer));
    EXPECT_NE(bytes(View(own), Group::kBuffer), bytes(View(x), Group::kBuffer));
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.5)};
  plan.stages[0].local.epochs = 1;
  plan.stages[0].local.batch_size = 0;
  plan.stages[0].hooks = hooks;
  MustRun(*TrainerOf(spec, TaskKind::kClassification), plan, TaskOf(examples.Classes()));
  EXPECT_EQ(calls, 1u);
}

TEST(Hooks, ThatThrowBecomeAStatusWithClientAndStage) {
  const HandLine line = Line();
  const models::ModelSpec spec = line.Spec();
  const Examples examples = line.Stored();
  const FlatVector x = PointOf(spec, {0.5, -0.25, 0.125});
  auto hooks = std::make_shared<Hooks>();
  hooks->loss = [](const models::Outputs& outputs, StepBatch&, std::span<const at::Tensor>) {
    return outputs.logits.matmul(outputs.logits);  // shapes do not fit
  };
  LocalPlan plan;
  plan.stages = {StageFrom(View(x), 0.1), StageFrom(View(x), 0.1)};
  plan.stages[1].hooks = hooks;
  const auto trainer = TrainerOf(spec, TaskKind::kRegression);
  const auto failed = trainer->Run(plan, TaskOf(examples.Targets()));
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(failed.status().message());
  EXPECT_THAT(message, testing::StartsWith("client 7: stage 1: LibTorch: "));
  EXPECT_THAT(message, testing::Not(testing::HasSubstr("frame #")));
  // Afterwards the trainer works as if the error had not happened.
  plan.stages.pop_back();
  EXPECT_TRUE(trainer->Run(plan, TaskOf(examples.Targets())).ok());
}

}  // namespace
}  // namespace macaw::training
