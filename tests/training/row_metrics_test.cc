#include "training/api/row_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace macaw::training {
namespace {

RunPlan Asking(TaskKind task, const EvaluationMetrics& metrics) {
  RunPlan run;
  run.task = task;
  run.evaluation.metrics = metrics;
  return run;
}

// The sums of SchemaFor of these predictions and labels, and those of the labels.
MetricSums SumsOf(const std::vector<float>& labels, const std::vector<double>& predictions) {
  MetricSums sums = {static_cast<double>(labels.size()), 0, 0};
  for (size_t i = 0; i < labels.size(); ++i) {
    const double error = predictions[i] - static_cast<double>(labels[i]);
    sums[1] += error * error;
    sums[2] += std::abs(error);
  }
  data::Rows rows;
  rows.block.count = labels.size();
  rows.block.targets = labels.data();
  AddLabelSums(Asking(TaskKind::kRegression, {.r2 = true}), rows, 0, labels.size(), sums);
  return sums;
}

double R2Of(const MetricSums& sums) {
  const auto metrics = RowMetricsOf({.r2 = true}, TaskKind::kRegression);
  EXPECT_EQ(metrics.size(), 1u);
  return metrics[0]->value(sums);
}

// scikit-learn's own example of r2_score: 0.948….
TEST(RowMetrics, R2IsThatOfScikitLearn) {
  EXPECT_NEAR(R2Of(SumsOf({3, -0.5F, 2, 7}, {2.5, 0.0, 2, 8})), 0.9486081370449679, 1e-15);
  EXPECT_DOUBLE_EQ(R2Of(SumsOf({1, 2, 3}, {1, 2, 3})), 1);
  EXPECT_DOUBLE_EQ(R2Of(SumsOf({1, 2, 3}, {2, 2, 2})), 0);
  EXPECT_DOUBLE_EQ(R2Of(SumsOf({1, 2, 3}, {3, 2, 1})), -3);
}

TEST(RowMetrics, R2OfPartsIsThatOfAllRowsAndNoMean) {
  MetricSums sums = SumsOf({3, -0.5F}, {2.5, 0.0});
  AddTo(sums, SumsOf({2, 7}, {2, 8}));
  EXPECT_NEAR(R2Of(sums), 0.9486081370449679, 1e-15);
}

TEST(RowMetrics, R2IsUndefinedWhereLabelsDoNotDiffer) {
  EXPECT_TRUE(std::isnan(R2Of(SumsOf({0.1F, 0.1F, 0.1F}, {0, 0, 0}))));
  EXPECT_TRUE(std::isnan(R2Of(SumsOf({5}, {5}))));
  EXPECT_TRUE(std::isnan(R2Of(SumsOf({}, {}))));
  EXPECT_TRUE(std::isnan(R2Of(MetricSums(3)))) << "the sums of labels are missing";
  // A mean of a thousand deviations is no harm.
  EXPECT_NEAR(R2Of(SumsOf({2001, 2002, 2003}, {2002, 2002, 2002})), 0, 1e-9);
}

TEST(RowMetrics, PerplexityIsOfTheMeanLoss) {
  const auto metrics = RowMetricsOf({.perplexity = true}, TaskKind::kNextToken);
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_DOUBLE_EQ(metrics[0]->value(MetricSums{10, 10 * std::log(7.0), 3}), 7);
  EXPECT_FALSE(metrics[0]->higher_is_better);
}

TEST(RowMetrics, AddNothingUnlessAsked) {
  MetricSums sums = {1, 2, 3};
  AddLabelSums(Asking(TaskKind::kRegression, {}), {}, 0, 5, sums);
  AddLabelSums(Asking(TaskKind::kClassification, {.r2 = true}), {}, 0, 5, sums);
  EXPECT_EQ(sums.size(), 3u);
  EXPECT_EQ(EvaluationSumsOf(Asking(TaskKind::kRegression, {.r2 = true})), 5u);
  EXPECT_TRUE(RowMetricsOf({.r2 = true, .perplexity = true}, TaskKind::kBinary).empty());
}

TEST(RowMetrics, TasksHaveTheirOwn) {
  const auto names = [](TaskKind task) {
    std::string all;
    for (const AskedMetric& metric : AskedMetricsOf(task)) all += std::string(metric.name) + " ";
    return all;
  };
  EXPECT_EQ(names(TaskKind::kClassification), "balanced_accuracy f1 auc top5 ece ");
  EXPECT_EQ(names(TaskKind::kBinary), "balanced_accuracy f1 auc ece ");
  EXPECT_EQ(names(TaskKind::kRegression), "r2 ");
  EXPECT_EQ(names(TaskKind::kNextToken), "perplexity ");
}

}  // namespace
}  // namespace macaw::training
