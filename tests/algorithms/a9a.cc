#include "tests/algorithms/a9a.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "testing/public_data.h"

namespace macaw::algorithms {
namespace {

constexpr double kLambda = 1e-3;
constexpr double kOptimum = .33334075206871;  // F* at this λ
constexpr size_t kFeatures = 123;

struct Row {
  double label;                // −1 or 1
  std::vector<uint32_t> ones;  // a9a's features are 0 or 1
};

std::vector<Row> ReadRows() {
  std::vector<Row> rows;
  std::istringstream text(testing_support::PublicText("a9a.gz"));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    Row row;
    words >> row.label;
    for (std::string word; words >> word;)
      row.ones.push_back(static_cast<uint32_t>(std::stoul(word)) - 1);
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<Row>& SortedRows() {
  static const auto& sorted = *new std::vector<Row>([] {
    std::vector<Row> rows = ReadRows();
    std::ranges::stable_sort(rows, {}, &Row::label);
    return rows;
  }());
  return sorted;
}

// Mean log-loss of the rows [begin, end); the ℓ2 term is the run's weight decay.
class LogLoss final : public Objective {
 public:
  LogLoss(size_t begin, size_t end)
      : rows_(SortedRows().begin() + begin, SortedRows().begin() + end) {}

  double Loss(const Numbers& w) const override {
    double sum = 0;
    for (const Row& row : rows_) sum += std::log1p(std::exp(-Margin(row, w)));
    return sum / static_cast<double>(rows_.size());
  }
  Numbers Gradient(const Numbers& w) const override {
    Numbers g(kFeatures);
    const double n = static_cast<double>(rows_.size());
    for (const Row& row : rows_) {
      const double slope = -row.label / (1 + std::exp(Margin(row, w))) / n;
      for (const uint32_t i : row.ones) g[i] += slope;
    }
    return g;
  }

 private:
  static double Margin(const Row& row, const Numbers& w) {
    double sum = 0;
    for (const uint32_t i : row.ones) sum += w[i];
    return row.label * sum;
  }
  const std::vector<Row> rows_;
};

}  // namespace

const std::vector<GoldenRow>& GoldenRows() {
  static const auto& rows = *new std::vector<GoldenRow>{
      {"GradientDescent", "gd", {}, 10, {1.40e-1, 5.15e-2, 2.90e-2, 1.43e-2}},
      {"FedAvg", "fedavg", {}, 10, {8.07e-2, 3.27e-2, 2.52e-2, 2.21e-2}},
      {"FedProx", "fedprox", {{"mu", 1.0}}, 10, {1.13e-1, 4.12e-2, 2.59e-2, 1.76e-2}},
      {"Scaffold", "scaffold", {{"weighted", true}}, 10, {3.36e-2, 4.18e-3, 1.14e-3, 2.15e-4}},
      {"Mime", "mime", {{"base", "sgd"}}, 10, {2.88e-2, 4.03e-3, 1.12e-3, 2.12e-4}},
      {"FedDyn",
       "feddyn",
       {{"alpha", 0.1}, {"weighted", true}},
       10,
       {1.25e-2, 2.44e-4, 2.88e-5, 1.62e-6}}};
  return rows;
}

std::vector<double> GoldenGaps(const GoldenRow& row, size_t checkpoints) {
  const size_t n = SortedRows().size();
  std::vector<TestPopulationClient> clients;
  for (size_t i = 0; i < 10; ++i) {
    const size_t begin = n * i / 10, end = n * (i + 1) / 10;
    clients.push_back({std::make_shared<LogLoss>(begin, end), static_cast<uint32_t>(end - begin)});
  }
  RoundLoop loop(Builtin(row.algorithm), clients,
                 {.steps = row.steps,
                  .parameters = row.parameters,
                  .start = Numbers(kFeatures),
                  .lr = 0.25,
                  .weight_decay = kLambda});
  const LogLoss all(0, n);
  std::vector<double> gaps;
  int round = 0;
  for (size_t k = 0; k < checkpoints; ++k) {
    if (!loop.Rounds(kGoldenRounds[k] - round).ok()) std::abort();
    round = kGoldenRounds[k];
    const Numbers w = loop.Model();
    double square = 0;
    for (const double x : w) square += x * x;
    gaps.push_back(all.Loss(w) + kLambda / 2 * square - kOptimum);
  }
  return gaps;
}

}  // namespace macaw::algorithms
