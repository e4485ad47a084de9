// The fused trainer against the eager one: random models, shapes, batches and options.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/training/testing.h"
#include "training/fused/fused_trainer.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {
namespace {

using fused::Isa;

// Draws one case after another from a stream, so that a failure names its seed.
class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : stream_({.seed = seed}) {
    task_ = std::array{TaskKind::kClassification, TaskKind::kClassification, TaskKind::kBinary,
                       TaskKind::kRegression}[Below(4)];
    if (task_ == TaskKind::kRegression && Below(2) == 0) task_ = TaskKind::kReconstruction;
    outputs_ = task_ == TaskKind::kClassification ? 2 + static_cast<int64_t>(Below(24)) : 1;
    DrawModel();
    DrawRows();
    DrawLocal();
  }

  TrainerSetup Setup() const {
    TrainerSetup setup;
    setup.spec = spec_;
    setup.task = task_;
    setup.local = local_;
    setup.dtype = DType::kF32;
    return setup;
  }

  // A start near zero, as models begin.
  FlatVector Vector(double scale) {
    FlatVector vector(spec_.layout);
    for (const LayoutEntry& entry : spec_.layout->entries()) {
      for (float& value : vector.As<float>().subspan(entry.offset, entry.size)) {
        value = static_cast<float>(scale * stream_.Normal());
      }
    }
    return vector;
  }

  Stage StageOf(const FlatVector& start, const FlatVector& anchor, const FlatVector& v) {
    Stage stage;
    stage.start = View(start);
    stage.local = local_;
    if (Below(3) == 0) stage.correction.mu = 0.3;
    if (Below(2) == 0) stage.correction.anchor = View(anchor);
    if (Below(3) == 0) stage.correction.v = {{.point = View(v)}};
    if (Below(4) == 0) {
      std::vector<bool> trainable(spec_.layout->entries().size());
      for (size_t i = 0; i < trainable.size(); ++i) trainable[i] = Below(2) == 0;
      trainable[Below(trainable.size())] = true;
      stage.trainable = std::make_shared<const std::vector<bool>>(std::move(trainable));
    }
    return stage;
  }

  data::Rows rows() const {
    return task_ == TaskKind::kRegression ? examples_->Targets() : examples_->Classes();
  }
  const models::ModelSpec& spec() const { return spec_; }
  uint64_t Below(uint64_t bound) { return stream_.Below(bound); }

 private:
  void DrawModel() {
    std::vector<std::string> layers;
    std::vector<int64_t> input = {1 + static_cast<int64_t>(Below(70))};
    if (Below(3) == 0) {
      input = {1 + static_cast<int64_t>(Below(3)), 1 + static_cast<int64_t>(Below(6)), 4};
      layers.push_back("flatten");
    }
    if (task_ == TaskKind::kReconstruction) {
      for (const int64_t extent : input) outputs_ *= extent;
    }
    for (uint64_t hidden = Below(4); hidden > 0; --hidden) {
      layers.push_back(absl::StrCat("linear ", 1 + Below(70), Below(4) == 0 ? " nobias" : ""));
      const uint64_t function = Below(5);
      if (function < 3) layers.push_back(std::array{"relu", "tanh", "sigmoid"}[function]);
      if (Below(4) == 0) layers.push_back("dropout 0.3");
    }
    layers.push_back(absl::StrCat("linear ", outputs_, Below(4) == 0 ? " nobias" : ""));
    spec_ = SpecOf(layers, input, outputs_, DType::kF32);
  }

  void DrawRows() {
    size_t width = 1;
    for (const int64_t extent : spec_.input_shape) width *= static_cast<size_t>(extent);
    // Sometimes more rows than one pass takes.
    const size_t count = Below(8) == 0 ? 129 + Below(200) : 1 + Below(40);
    std::vector<std::vector<double>> rows(count, std::vector<double>(width));
    std::vector<double> labels(count);
    const auto classes = static_cast<uint64_t>(task_ == TaskKind::kBinary ? 2 : outputs_);
    for (size_t i = 0; i < count; ++i) {
      for (double& x : rows[i]) x = stream_.Normal();
      labels[i] = task_ == TaskKind::kRegression ? stream_.Normal()
                                                 : static_cast<double>(stream_.Below(classes));
    }
    examples_.emplace(std::move(rows), std::move(labels), Below(8));
  }

  void DrawLocal() {
    // Small enough that squared errors with many features do not diverge.
    const bool numbers = task_ == TaskKind::kRegression || task_ == TaskKind::kReconstruction;
    local_.lr = numbers ? 0.002 : 0.02;
    local_.batch_size = static_cast<uint32_t>(Below(14));
    local_.epochs = 1 + static_cast<uint32_t>(Below(3));
    if (Below(4) == 0) local_.steps = 1 + static_cast<uint32_t>(Below(6));
    if (Below(3) == 0) local_.momentum = 0.9;
    local_.nesterov = Below(2) == 0;
    if (Below(3) == 0) local_.weight_decay = 0.01;
    if (Below(3) == 0) local_.clip_norm = 0.5;
    local_.shuffle = Below(2) == 0;
    // A client with less than one batch must not be asked for steps.
    local_.drop_last = local_.steps == 0 && Below(4) == 0;
    if (numbers) return;
    if (Below(3) == 0) {
      const int64_t classes = task_ == TaskKind::kBinary ? 2 : outputs_;
      for (int64_t c = 0; c < classes; ++c) local_.class_weights.push_back(0.5 + stream_.Uniform());
    }
    if (Below(3) == 0) local_.label_smoothing = 0.1;
  }

  RandomStream stream_;
  TaskKind task_ = TaskKind::kClassification;
  int64_t outputs_ = 1;
  models::ModelSpec spec_;
  LocalConfig local_;
  std::optional<Examples> examples_;
};

std::unique_ptr<LocalTrainer> MustMake(absl::StatusOr<std::unique_ptr<LocalTrainer>> trainer) {
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return trainer.ok() ? *std::move(trainer) : nullptr;
}

void ExpectSums(const MetricSums& actual, const MetricSums& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-6 * std::max(1e-3, std::abs(expected[i]))) << i;
  }
}

class FusedAgreement : public testing::TestWithParam<Isa> {};

TEST_P(FusedAgreement, OfAClientsWorkOnRandomModels) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomCase random(seed);
    const TrainerSetup setup = random.Setup();
    const auto eager = MustMake(TorchBackend().MakeTrainer(setup));
    const auto fused = MustMake(fused::FusedTrainer::Make(setup, GetParam()));
    ASSERT_TRUE(eager != nullptr && fused != nullptr);
    const FlatVector start = random.Vector(0.2), anchor = random.Vector(0.1),
                     v = random.Vector(0.01);
    LocalPlan plan;
    plan.stages.push_back(random.StageOf(start, anchor, v));
    plan.stages.push_back(plan.stages[0]);
    plan.stages[1].kind = StageKind::kGradient;
    plan.stages[1].start = StageEnd{0};
    plan.stages.push_back(plan.stages[0]);
    plan.stages[2].kind = StageKind::kLoss;
    const ClientTask task = TaskOf(random.rows());
    const auto expected = MustRun(*eager, plan, task), actual = MustRun(*fused, plan, task);

    const double error = ErrorOf(actual[0].end, expected[0].end, View(start));
    EXPECT_LT(error, 1e-5);
    worst = std::max(worst, error);
    const FlatVector zero(random.spec().layout);
    EXPECT_LT(ErrorOf(actual[1].end, expected[1].end, View(zero)), 2e-5);
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      EXPECT_EQ(actual[i].steps, expected[i].steps);
      EXPECT_EQ(actual[i].examples, expected[i].examples);
      EXPECT_EQ(actual[i].rate_sum, expected[i].rate_sum);
      EXPECT_EQ(actual[i].a_norm1, expected[i].a_norm1);
      ExpectSums(actual[i].sums, expected[i].sums);
    }
    const auto sums = fused->Evaluate(View(start), task.train, 0, task.train.size(), 7);
    const auto eager_sums = eager->Evaluate(View(start), task.train, 0, task.train.size(), 7);
    ASSERT_TRUE(sums.ok() && eager_sums.ok());
    ExpectSums(*sums, *eager_sums);
  }
  RecordProperty("worst_error", absl::StrCat(worst));
}

// The counts of classes behind the sums. An output on the border between two cells may be in
// either.
TEST_P(FusedAgreement, OfTheCountsOfClasses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomCase random(seed);
    TrainerSetup setup = random.Setup();
    setup.metrics = {.f1 = true, .auc = true};
    const FlatVector model = random.Vector(0.3);
    const data::Rows rows = TaskOf(random.rows()).train;
    const auto eager = MustMake(TorchBackend().MakeTrainer(setup));
    const auto fused = MustMake(fused::FusedTrainer::Make(setup, GetParam()));
    const auto ours = fused->Evaluate(View(model), rows, 0, rows.size(), 64);
    const auto theirs = eager->Evaluate(View(model), rows, 0, rows.size(), 64);
    ASSERT_TRUE(ours.ok() && theirs.ok());
    ASSERT_EQ(ours->size(), theirs->size());
    const size_t counts = setup.CountedClasses().size();
    double counted = 0, differing = 0;
    for (size_t i = ours->size() - counts; i < ours->size(); ++i) {
      counted += (*ours)[i];
      differing += std::abs((*ours)[i] - (*theirs)[i]);
    }
    EXPECT_EQ(counted, static_cast<double>(rows.size() * setup.CountedClasses().per_row()));
    EXPECT_LE(differing, std::max(2.0, 0.02 * counted));
  }
}

TEST_P(FusedAgreement, OfACorrectionThatIsASumOfPoints) {
  const models::ModelSpec spec = SpecOf({"linear 12", "relu", "linear 5"}, {9}, 5, DType::kF32);
  TrainerSetup setup;
  setup.spec = spec;
  setup.dtype = DType::kF32;
  const auto eager = MustMake(TorchBackend().MakeTrainer(setup));
  const auto fused = MustMake(fused::FusedTrainer::Make(setup, GetParam()));
  const FlatVector start = models::InitialModel(spec, 1), mean = models::InitialModel(spec, 2);
  const Examples examples = RandomExamples(30, 9, 5, 3);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0), StageFrom(View(start), 0.05)};
  plan.stages[0].kind = StageKind::kGradient;
  plan.stages[1].local.epochs = 4;
  plan.stages[1].correction.v = {{.point = View(mean), .factor = 0.3},
                                 {.point = StageEnd{0}, .factor = -1}};
  const ClientTask task = TaskOf(examples.Classes());
  const auto expected = MustRun(*eager, plan, task), actual = MustRun(*fused, plan, task);
  EXPECT_LT(ErrorOf(actual[1].end, expected[1].end, View(start)), 1e-5);
  // And both terms count.
  for (const size_t left_out : {0, 1}) {
    LocalPlan less = plan;
    less.stages[1].correction.v.erase(less.stages[1].correction.v.begin() +
                                      static_cast<std::ptrdiff_t>(left_out));
    EXPECT_GT(ErrorOf(MustRun(*fused, less, task)[1].end, expected[1].end, View(start)), 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(OnEach, FusedAgreement, testing::ValuesIn(fused::SupportedIsas()),
                         [](const auto& info) { return std::string(fused::Name(info.param)); });

}  // namespace
}  // namespace macaw::training
