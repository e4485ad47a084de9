// The same plan gives the same bytes, on whatever thread, after whatever other work, from rows
// stored anywhere.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/training/testing.h"
#include "training/hooks.h"
#include "training/torch/replica.h"

namespace macaw::training {
namespace {

struct DigestBits {
  Digest end;
  MetricSums sums;
  friend bool operator==(const DigestBits&, const DigestBits&) = default;
};

struct Case {
  std::string name;
  models::ModelSpec spec;
  size_t width;
};

std::vector<Case> Cases(DType dtype) {
  return {{"logistic", SpecOf({"linear 10"}, {61}, 10, dtype), 61},
          {"mlp with dropout",
           SpecOf({"linear 37", "relu", "dropout 0.3", "linear 10"}, {123}, 10, dtype), 123},
          {"convolutions",
           SpecOf({"conv 6 3 pad 1", "relu", "maxpool 2", "conv 8 3", "groupnorm 2", "relu",
                   "flatten", "dropout 0.5", "linear 10"},
                  {1, 11, 13}, 10, dtype),
           143}};
}

DigestBits Train(LocalTrainer& trainer, const models::ModelSpec& spec, const Examples& examples,
                 uint64_t client, std::function<void(ClientTask&)> change = nullptr) {
  const FlatVector x = models::InitialModel(spec, 1);
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(x), 0.05));
  Stage& stage = plan.stages[0];
  stage.local.batch_size = 10;
  stage.local.epochs = 2;
  stage.local.shuffle = true;
  stage.local.momentum = 0.9;
  stage.local.clip_norm = 5;
  stage.correction.mu = 0.1;
  ClientTask task = TaskOf(examples.Classes());
  task.client = ClientId(client);
  if (change) change(task);
  const auto outcome = MustRun(trainer, plan, task)[0];
  return {DigestOfValues(outcome.end), outcome.sums};
}

class EagerDeterminism : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, EagerDeterminism, testing::Values(DType::kF32, DType::kF64));

TEST_P(EagerDeterminism, GivesTheSameBitsAfterOtherClients) {
  for (const Case& c : Cases(GetParam())) {
    const Examples mine = RandomExamples(33, c.width, 10, 1);
    const Examples other = RandomExamples(77, c.width, 10, 2);
    const auto fresh = TrainerOf(c.spec, TaskKind::kClassification);
    const auto used = TrainerOf(c.spec, TaskKind::kClassification);
    Train(*used, c.spec, other, 1);
    Train(*used, c.spec, mine, 2);
    ASSERT_TRUE(
        used->Evaluate(View(models::InitialModel(c.spec, 3)), other.Classes(), 0, 50, 7).ok());
    EXPECT_EQ(Train(*fresh, c.spec, mine, 3), Train(*used, c.spec, mine, 3)) << c.name;
  }
}

TEST_P(EagerDeterminism, GivesTheSameBitsOnEveryThread) {
  for (const Case& c : Cases(GetParam())) {
    const Examples examples = RandomExamples(33, c.width, 10, 1);
    const DigestBits here =
        Train(*TrainerOf(c.spec, TaskKind::kClassification), c.spec, examples, 3);
    std::vector<DigestBits> there(2);
    {
      std::vector<std::jthread> threads;
      for (DigestBits& bits : there) {
        threads.emplace_back([&] {
          const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
          bits = Train(*trainer, c.spec, examples, 3);
        });
      }
    }
    EXPECT_EQ(here, there[0]) << c.name;
    EXPECT_EQ(here, there[1]) << c.name;
  }
}

TEST_P(EagerDeterminism, DoesNotCareWhereRowsAreStored) {
  for (const Case& c : Cases(GetParam())) {
    const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
    const DigestBits aligned = Train(*trainer, c.spec, RandomExamples(33, c.width, 10, 1), 3);
    for (const size_t shift : {1u, 4u, 28u}) {
      EXPECT_EQ(aligned, Train(*trainer, c.spec, RandomExamples(33, c.width, 10, 1, shift), 3))
          << c.name << " at byte " << shift;
    }
  }
}

TEST_P(EagerDeterminism, DoesNotCareWhereAModelIsStoredWhenEvaluating) {
  for (const Case& c : Cases(GetParam())) {
    const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
    const Examples examples = RandomExamples(33, c.width, 10, 1);
    const FlatVector x = models::InitialModel(c.spec, 1);
    AlignedBuffer odd(c.spec.layout->bytes() + 8);
    std::memcpy(odd.bytes().data() + 8, View(x).bytes.data(), View(x).bytes.size());
    const ConstVectorView moved{c.spec.layout.get(), odd.bytes().subspan(8)};
    EXPECT_EQ(*trainer->Evaluate(View(x), examples.Classes(), 0, 33, 10),
              *trainer->Evaluate(moved, examples.Classes(), 0, 33, 10))
        << c.name;
  }
}

TEST_P(EagerDeterminism, DoesNotCareWhereATeacherIsStored) {
  for (const Case& c : Cases(GetParam())) {
    const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
    const Examples examples = RandomExamples(33, c.width, 10, 1);
    const FlatVector x = models::InitialModel(c.spec, 1), teacher = models::InitialModel(c.spec, 2);
    const auto hooks = std::make_shared<Hooks>();
    LocalPlan plan;
    plan.stages = {StageFrom(View(x), 0.1)};
    plan.stages[0].hooks = hooks;
    for (const size_t shift : {4u, 8u, 20u, 40u}) {
      AlignedBuffer odd(c.spec.layout->bytes() + shift);
      std::memcpy(odd.bytes().data() + shift, View(teacher).bytes.data(),
                  View(teacher).bytes.size());
      const ConstVectorView moved{c.spec.layout.get(), odd.bytes().subspan(shift)};
      // Whether other alignments give other bits depends on the processor.
      const at::Tensor read = FlatTensorAnywhere(moved);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data_ptr()) % 64, 0u) << shift;
      EXPECT_TRUE(read.equal(FlatTensor(View(teacher))));
      hooks->loss = [&](const models::Outputs& outputs, StepBatch& batch,
                        std::span<const at::Tensor>) {
        const at::Tensor here = batch.OutputsAt(View(teacher)).logits;
        EXPECT_TRUE(here.equal(batch.OutputsAt(moved).logits)) << c.name << " at byte " << shift;
        return (outputs.logits - here).pow(2).mean();
      };
      MustRun(*trainer, plan, TaskOf(examples.Classes()));
    }
  }
}

TEST_P(EagerDeterminism, ChangesWithRoundClientAndSeed) {
  for (const Case& c : Cases(GetParam())) {
    const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
    const Examples examples = RandomExamples(33, c.width, 10, 1);
    const DigestBits base = Train(*trainer, c.spec, examples, 3);
    EXPECT_NE(base, Train(*trainer, c.spec, examples, 4)) << c.name;
    EXPECT_NE(base,
              Train(*trainer, c.spec, examples, 3, [](ClientTask& t) { t.round = Round(9); }));
    EXPECT_NE(base, Train(*trainer, c.spec, examples, 3, [](ClientTask& t) { t.seed = 12; }));
    EXPECT_NE(base,
              Train(*trainer, c.spec, examples, 3, [](ClientTask& t) { t.phase = Phase(1); }));
  }
}

// FedProx with μ = 0, and a clip that is never reached, equal FedAvg bit for bit.
TEST_P(EagerDeterminism, TreatsAnInactiveRuleAsNone) {
  for (const Case& c : Cases(GetParam())) {
    const auto trainer = TrainerOf(c.spec, TaskKind::kClassification);
    const Examples examples = RandomExamples(33, c.width, 10, 1);
    const FlatVector x = models::InitialModel(c.spec, 1), other = models::InitialModel(c.spec, 2);
    LocalPlan plan;
    plan.stages.push_back(StageFrom(View(x), 0.05));
    plan.stages[0].local.batch_size = 10;
    const Digest none = DigestOfValues(MustRun(*trainer, plan, TaskOf(examples.Classes()))[0].end);
    plan.stages[0].correction.anchor = View(other);
    plan.stages[0].local.clip_norm = 1e30;
    EXPECT_EQ(none, DigestOfValues(MustRun(*trainer, plan, TaskOf(examples.Classes()))[0].end));
  }
}

}  // namespace
}  // namespace macaw::training
