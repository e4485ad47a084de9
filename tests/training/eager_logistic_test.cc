// ℓ2-regularised logistic regression on a9a in double: the trainer against a plain loop, and
// against the known run of gradient descent.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "testing/public_data.h"
#include "tests/training/testing.h"

namespace macaw::training {
namespace {

constexpr size_t kFeatures = 123;
constexpr double kLambda = 1e-3;
constexpr double kRate = 0.25;
constexpr double kOptimum = 0.33334075206871;  // F* for this λ

struct Sparse {
  std::vector<std::vector<double>> rows;
  std::vector<double> labels;  // 0 or 1
};

Sparse ReadA9a() {
  Sparse data;
  std::istringstream text(testing_support::PublicText("a9a.gz"));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    double label = 0;
    words >> label;
    std::vector<double> row(kFeatures);
    for (std::string pair; words >> pair;) {
      row.at(std::stoul(pair) - 1) = std::stod(pair.substr(pair.find(':') + 1));
    }
    data.rows.push_back(std::move(row));
    data.labels.push_back(label > 0 ? 1 : 0);
  }
  return data;
}

double Objective(const Sparse& data, const std::vector<double>& w) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < data.rows.size(); ++i) {
    double z = 0;
    for (size_t k = 0; k < kFeatures; ++k) z += w[k] * data.rows[i][k];
    const double margin = data.labels[i] > 0 ? z : -z;
    sum += std::log1p(std::exp(-margin));
  }
  for (const double value : w) squares += value * value;
  return sum / static_cast<double>(data.rows.size()) + kLambda / 2 * squares;
}

std::vector<double> Descend(const Sparse& data, int steps) {
  std::vector<double> w(kFeatures);
  for (int step = 0; step < steps; ++step) {
    std::vector<double> g(kFeatures);
    for (size_t i = 0; i < data.rows.size(); ++i) {
      double z = 0;
      for (size_t k = 0; k < kFeatures; ++k) z += w[k] * data.rows[i][k];
      const double error = 1 / (1 + std::exp(-z)) - data.labels[i];
      for (size_t k = 0; k < kFeatures; ++k) g[k] += error * data.rows[i][k];
    }
    for (size_t k = 0; k < kFeatures; ++k) {
      w[k] -= kRate * (g[k] / static_cast<double>(data.rows.size()) + kLambda * w[k]);
    }
  }
  return w;
}

TEST(EagerLogistic, DescendsOnA9aAsAPlainLoopDoes) {
  const Sparse data = ReadA9a();
  ASSERT_EQ(data.rows.size(), 32561u);
  const models::ModelSpec spec = SpecOf({"linear 1 nobias"}, {kFeatures}, 1, DType::kF64);
  const Examples examples(data.rows, data.labels);
  const FlatVector zero(spec.layout);
  LocalPlan plan;
  plan.stages = {StageFrom(View(zero), kRate), StageFrom(StageEnd{0}, kRate)};
  plan.stages[0].local.weight_decay = plan.stages[1].local.weight_decay = kLambda;
  plan.stages[0].local.epochs = 10;
  plan.stages[1].local.epochs = 40;
  const auto trainer = TrainerOf(spec, TaskKind::kBinary);
  const auto outcomes = MustRun(*trainer, plan, TaskOf(examples.Classes()));

  const std::vector<double> expected = Descend(data, 10);
  const std::vector<double> after10 = TensorOf(outcomes[0].end, 0);
  for (size_t k = 0; k < kFeatures; ++k) EXPECT_NEAR(after10[k], expected[k], 1e-12) << k;
  // F − F* of gradient descent after 10 and 50 steps.
  EXPECT_NEAR(Objective(data, after10) - kOptimum, 1.40e-1, 1.40e-3);
  EXPECT_NEAR(Objective(data, TensorOf(outcomes[1].end, 0)) - kOptimum, 5.15e-2, 5.15e-4);
}

}  // namespace
}  // namespace macaw::training
