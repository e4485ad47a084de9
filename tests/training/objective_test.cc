#include "training/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace macaw::training {
namespace {

using testing::HasSubstr;

LocalConfig Weighing(std::vector<double> class_weights, double label_smoothing) {
  LocalConfig local;
  local.class_weights = std::move(class_weights);
  local.label_smoothing = label_smoothing;
  return local;
}

LocalConfig Plain() { return Weighing({}, 0); }

struct Rated {
  MetricSums sums;
  std::vector<double> gradient;
  double loss() const { return sums[1] / sums[0]; }
};

Rated Rate(TaskKind task, int64_t outputs, const LocalConfig& local, std::vector<double> z,
           const Labels<double>& labels) {
  const Objective objective = *Objective::Make(task, outputs, local);
  Rated rated{MetricSums(objective.metrics()), std::vector<double>(z.size())};
  objective.Rate<double>(z, labels, objective.MeanOf(labels), rated.gradient, rated.sums);
  return rated;
}

// The gradient that Rate wrote, against central differences of its own loss.
void ExpectGradientOfLoss(TaskKind task, int64_t outputs, const LocalConfig& local,
                          const std::vector<double>& z, const Labels<double>& labels) {
  const Rated rated = Rate(task, outputs, local, z, labels);
  for (size_t i = 0; i < z.size(); ++i) {
    const double h = 1e-5;
    std::vector<double> up = z, down = z;
    up[i] += h, down[i] -= h;
    const double slope = (Rate(task, outputs, local, up, labels).loss() -
                          Rate(task, outputs, local, down, labels).loss()) /
                         (2 * h);
    EXPECT_NEAR(rated.gradient[i], slope, 1e-9) << i;
  }
}

const std::vector<int64_t> kClasses = {2, 0};
const std::vector<double> kLogits = {0.5, -1.0, 2.0, 1.5, 1.0, -0.25};

TEST(ObjectiveOfClassification, IsTheMeanCrossEntropy) {
  const Rated rated = Rate(TaskKind::kClassification, 3, Plain(), {0, 0, 0, std::log(2.0), 0, 0},
                           {.classes = kClasses});
  EXPECT_NEAR(rated.loss(), (std::log(3.0) + std::log(2.0)) / 2, 1e-15);
  EXPECT_EQ(rated.sums[0], 2);
  EXPECT_EQ(rated.sums[2], 1);  // a tie goes to the lowest class, which is wrong in the first row
  EXPECT_NEAR(rated.gradient[0], 1.0 / 6, 1e-15);
  EXPECT_NEAR(rated.gradient[2], (1.0 / 3 - 1) / 2, 1e-15);
  EXPECT_NEAR(rated.gradient[3], (0.5 - 1) / 2, 1e-15);
}

// Values of torch.nn.functional.cross_entropy(z, y, weight=[1, 2, .5], label_smoothing=.1) in
// double.
TEST(ObjectiveOfClassification, WeighsAndSmoothsAsPyTorchDoes) {
  const LocalConfig local = Weighing({1, 2, 0.5}, 0.1);
  const Rated rated = Rate(TaskKind::kClassification, 3, local, kLogits, {.classes = kClasses});
  const auto nll = [&](size_t row, size_t c) {
    double partition = 0;
    for (size_t k = 0; k < 3; ++k) partition += std::exp(kLogits[row * 3 + k]);
    return std::log(partition) - kLogits[row * 3 + c];
  };
  const double sharp = (0.5 * nll(0, 2) + 1 * nll(1, 0)) / 1.5;
  double smooth = 0;
  for (size_t row = 0; row < 2; ++row) {
    smooth += (nll(row, 0) + 2 * nll(row, 1) + 0.5 * nll(row, 2)) / 1.5;
  }
  EXPECT_NEAR(rated.loss(), 0.9 * sharp + 0.1 / 3 * smooth, 1e-14);
  ExpectGradientOfLoss(TaskKind::kClassification, 3, local, kLogits, {.classes = kClasses});
  ExpectGradientOfLoss(TaskKind::kClassification, 3, Plain(), kLogits, {.classes = kClasses});
}

TEST(ObjectiveOfClassification, StaysFiniteFarOutAndCountsNoNanAsCorrect) {
  const std::vector<int64_t> zero(1);
  const Rated far = Rate(TaskKind::kClassification, 2, Plain(), {-1e30, 1e30}, {.classes = zero});
  EXPECT_EQ(far.loss(), 2e30);
  EXPECT_EQ(far.gradient[0], -1);
  const Rated nan = Rate(TaskKind::kClassification, 2, Plain(), {NAN, 1}, {.classes = zero});
  EXPECT_EQ(nan.sums[2], 0);
  EXPECT_TRUE(std::isnan(nan.loss()));
}

TEST(ObjectiveOfBinary, CountsWhatPrecisionAndRecallNeed) {
  const std::vector<int64_t> y = {1, 1, 0, 0, 1};
  const Rated rated =
      Rate(TaskKind::kBinary, 1, Plain(), {2, -1, 3, -0.5, std::log(3.0)}, {.classes = y});
  EXPECT_EQ(rated.sums[0], 5);
  EXPECT_EQ(rated.sums[2], 3);  // correct
  EXPECT_EQ(rated.sums[3], 2);  // true positives
  EXPECT_EQ(rated.sums[4], 3);  // predicted
  EXPECT_EQ(rated.sums[5], 3);  // positives
  EXPECT_NEAR(rated.gradient[4], (0.75 - 1) / 5, 1e-15);
  const std::vector<double> z = {2, -1, 3, -0.5, 40};
  ExpectGradientOfLoss(TaskKind::kBinary, 1, Plain(), z, {.classes = y});
  ExpectGradientOfLoss(TaskKind::kBinary, 1, Weighing({1, 3}, 0.2), z, {.classes = y});
}

TEST(ObjectiveOfRegression, IsThePlainMeanSquare) {
  const std::vector<double> t = {1, 4};
  const Rated rated = Rate(TaskKind::kRegression, 1, Plain(), {3, 3.5}, {.targets = t});
  EXPECT_DOUBLE_EQ(rated.loss(), (4 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(rated.sums[2], 2.5);
  EXPECT_DOUBLE_EQ(rated.gradient[0], 2);
  EXPECT_DOUBLE_EQ(rated.gradient[1], -0.5);
}

TEST(ObjectiveOfReconstruction, IsTheMeanSquareOfARowsFeatures) {
  const std::vector<double> x = {1, 4, 0, 2, -1, 1};
  const std::vector<double> z = {3, 3.5, 0, 2, -1, 2};
  const Rated rated = Rate(TaskKind::kReconstruction, 3, Plain(), z, {.targets = x});
  EXPECT_EQ(rated.sums[0], 2);
  EXPECT_DOUBLE_EQ(rated.loss(), ((4 + 0.25) / 3 + 1 / 3.0) / 2);
  EXPECT_DOUBLE_EQ(rated.gradient[0], 2 * 2 / 6.0);
  EXPECT_DOUBLE_EQ(rated.gradient[1], 2 * -0.5 / 6);
  EXPECT_DOUBLE_EQ(rated.gradient[5], 2 / 6.0);
  ExpectGradientOfLoss(TaskKind::kReconstruction, 3, Plain(), z, {.targets = x});
}

TEST(Objective, AddsUpOverBatchesToTheMeanOverAllRows) {
  const LocalConfig local = Weighing({1, 2, 0.5}, 0);
  const Objective objective = *Objective::Make(TaskKind::kClassification, 3, local);
  const Labels<double> all{.classes = kClasses};
  const Mean mean = objective.MeanOf(all);
  const Rated whole = Rate(TaskKind::kClassification, 3, local, kLogits, all);
  MetricSums sums(objective.metrics());
  std::vector<double> gradient(6);
  for (size_t row = 0; row < 2; ++row) {
    objective.Rate<double>(std::span(kLogits).subspan(row * 3, 3),
                           {.classes = std::span(kClasses).subspan(row, 1)}, mean,
                           std::span(gradient).subspan(row * 3, 3), sums);
  }
  EXPECT_EQ(sums, whole.sums);
  EXPECT_EQ(gradient, whole.gradient);
}

TEST(Objective, RefusesWhatDoesNotFitTheTask) {
  const auto error = [](TaskKind task, int64_t outputs, const LocalConfig& local) {
    return std::string(Objective::Make(task, outputs, local).status().message());
  };
  EXPECT_THAT(error(TaskKind::kBinary, 2, Plain()), HasSubstr("one output, not 2"));
  EXPECT_THAT(error(TaskKind::kRegression, 1, Weighing({}, 0.1)), HasSubstr("regression"));
  EXPECT_THAT(error(TaskKind::kReconstruction, 3, Weighing({}, 0.1)), HasSubstr("reconstruction"));
  EXPECT_THAT(error(TaskKind::kClassification, 3, Weighing({1}, 0)),
              HasSubstr("local.class_weights has 1 numbers, the task has 3"));
  EXPECT_THAT(error(TaskKind::kClassification, 2, Weighing({1, -1}, 0)), HasSubstr("-1"));
  EXPECT_THAT(error(TaskKind::kClassification, 2, Weighing({}, 1)), HasSubstr("[0, 1)"));
  const Objective objective = *Objective::Make(TaskKind::kClassification, 3, Plain());
  EXPECT_THAT(objective.CheckClasses(std::vector<int64_t>{0, 3}).message(),
              HasSubstr("label 3, the model knows 0 to 2"));
  EXPECT_FALSE(objective.CheckClasses(std::vector<int64_t>{-1}).ok());
}

TEST(SchemaFor, NamesASumForEveryIndex) {
  for (const TaskKind task : {TaskKind::kClassification, TaskKind::kBinary, TaskKind::kRegression,
                              TaskKind::kReconstruction}) {
    const MetricSchema schema = SchemaFor(task);
    EXPECT_EQ(schema.sums[0], "examples");
    EXPECT_EQ(schema.sums[1], "loss");
    EXPECT_EQ(schema.ratios[0].name, "loss");
    for (const MetricRatio& ratio : schema.ratios) {
      EXPECT_LT(ratio.numerator, schema.sums.size());
      EXPECT_LT(ratio.denominator, schema.sums.size());
    }
  }
}

}  // namespace
}  // namespace macaw::training
