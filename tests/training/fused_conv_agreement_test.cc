// Convolutional models: the fused trainer against the eager one, over whole clients' work.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/named.h"
#include "tests/training/testing.h"
#include "training/fused/fused_trainer.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {
namespace {

using fused::Isa;

struct Job {
  std::vector<std::string> layers;
  std::vector<int64_t> input = {1, 28, 28};
  int64_t classes = 10;
  size_t rows = 25;
  LocalConfig local = {};
  std::vector<bool> trainable = {};  // tensors; empty: all
};

LocalConfig Local(double momentum, double weight_decay, double clip) {
  LocalConfig local;
  local.lr = 0.05;
  local.epochs = 2;
  local.batch_size = 10;  // 25 rows: the last batch is ragged
  local.momentum = momentum;
  local.weight_decay = weight_decay;
  local.clip_norm = clip;
  return local;
}

std::vector<std::string> Named(const std::string& name) {
  ModelConfig config;
  config.name = name;
  config.input_shape = {1, 28, 28};
  config.classes = 10;
  return *models::LayersOf(config);
}

// Every option of a step is tested with a named model. The other cases test each block, and each
// kind of block after each other kind.
std::vector<Job> Jobs() {
  std::vector<Job> jobs = {
      {.layers = Named("lenet5"), .rows = 45, .local = Local(0, 0, 0)},
      {.layers = Named("lenet5"), .local = Local(0.9, 1e-3, 1)},
      {.layers = Named("lenet5"),
       .local = Local(0.9, 0, 0),
       .trainable = {true, true, false, false, true, true, false, true, true, true}},
      {.layers = Named("cnn"), .rows = 14, .local = Local(0.9, 0, 0)},
      {.layers = Named("simple_cnn"), .rows = 14, .local = Local(0, 1e-3, 0)},
      {.layers = {"conv 8 3 pad 1 stride 2", "relu", "dropout 0.3", "conv 12 3", "maxpool 2",
                  "relu", "flatten", "dropout 0.5", "linear 5"},
       .input = {3, 17, 15},
       .classes = 5,
       .local = Local(0.9, 1e-3, 0)},
      {.layers = {"conv 5 3 nobias", "tanh", "avgpool 2", "conv 20 2 pad 1", "sigmoid",
                  "maxpool 3 stride 2", "conv 7 1", "relu", "globalavgpool", "flatten", "linear 4"},
       .input = {2, 14, 13},
       .classes = 4,
       .local = Local(0, 0, 0)},
      {.layers = {"maxpool 2", "conv 33 4 pad 3", "relu", "conv 17 3 stride 2", "relu", "maxpool 3",
                  "flatten", "linear 6"},
       .input = {3, 18, 20},
       .classes = 6,
       .local = Local(0, 0, 0.5)},
      {.layers = {"conv 6 7 pad 3", "dropout 0.2", "globalavgpool", "flatten"},
       .input = {4, 6, 9},
       .classes = 6,
       .local = Local(0.9, 0, 0)},
  };
  return jobs;
}

class FusedConvAgreement : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(OnEach, FusedConvAgreement, testing::ValuesIn(fused::SupportedIsas()),
                         [](const auto& info) { return std::string(fused::Name(info.param)); });

TEST_P(FusedConvAgreement, OfAClientsWork) {
  double worst = 0;
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(absl::StrJoin(job.layers, ", "));
    TrainerSetup setup;
    setup.spec = SpecOf(job.layers, job.input, job.classes, DType::kF32);
    setup.local = job.local;
    setup.dtype = DType::kF32;
    auto eager = TorchBackend().MakeTrainer(setup);
    auto fused = fused::FusedTrainer::Make(setup, GetParam());
    ASSERT_TRUE(eager.ok()) << eager.status();
    ASSERT_TRUE(fused.ok()) << fused.status();

    const FlatVector start = models::InitialModel(setup.spec, 5);
    LocalPlan plan;
    plan.stages.emplace_back();
    plan.stages[0].start = View(start);
    plan.stages[0].local = job.local;
    plan.stages[0].correction.mu = 0.1;
    if (!job.trainable.empty()) {
      plan.stages[0].trainable = std::make_shared<const std::vector<bool>>(job.trainable);
    }
    const auto width = static_cast<size_t>(job.input[0] * job.input[1] * job.input[2]);
    const Examples examples =
        RandomExamples(job.rows, width, static_cast<size_t>(job.classes), 3, 4);
    const ClientTask task = TaskOf(examples.Classes());
    const auto expected = MustRun(**eager, plan, task), actual = MustRun(**fused, plan, task);

    const double error = ErrorOf(actual[0].end, expected[0].end, View(start));
    EXPECT_LT(error, 1e-5);
    worst = std::max(worst, error);
    EXPECT_EQ(actual[0].steps, expected[0].steps);
    const auto sums = (*fused)->Evaluate(View(start), task.train, 0, job.rows, 7);
    const auto eager_sums = (*eager)->Evaluate(View(start), task.train, 0, job.rows, 7);
    ASSERT_TRUE(sums.ok() && eager_sums.ok());
    for (size_t i = 0; i < sums->size(); ++i) {
      EXPECT_NEAR((*sums)[i], (*eager_sums)[i], 1e-5 * std::max(1.0, std::abs((*eager_sums)[i])));
    }
  }
  RecordProperty("worst_error", absl::StrCat(worst));
}

// Earlier work, or another trainer next to this one, must not affect the result.
TEST_P(FusedConvAgreement, OfBitsWithItself) {
  TrainerSetup setup;
  setup.spec = SpecOf(Named("lenet5"), {1, 28, 28}, 10, DType::kF32);
  setup.local = Local(0.9, 1e-3, 0);
  setup.dtype = DType::kF32;
  const FlatVector start = models::InitialModel(setup.spec, 5);
  LocalPlan plan;
  plan.stages.emplace_back();
  plan.stages[0].start = View(start);
  plan.stages[0].local = setup.local;
  std::vector<std::vector<float>> ends;
  for (const size_t shift : {0, 4, 60}) {
    auto fused = fused::FusedTrainer::Make(setup, GetParam());
    ASSERT_TRUE(fused.ok()) << fused.status();
    const Examples other = RandomExamples(31, 784, 10, 8),
                   examples = RandomExamples(25, 784, 10, 3, shift);
    if (shift == 4) MustRun(**fused, plan, TaskOf(other.Classes()));
    const auto outcomes = MustRun(**fused, plan, TaskOf(examples.Classes()));
    const auto end = outcomes[0].end.As<float>();
    ends.emplace_back(end.begin(), end.end());
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0], ends[2]);
}

}  // namespace
}  // namespace macaw::training
