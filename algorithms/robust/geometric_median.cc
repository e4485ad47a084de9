#include <algorithm>
#include <cmath>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/reported_weights.h"
#include "algorithms/robust/robust.h"

// Geometric median: Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE
// TSP 2022, the smoothed Weiszfeld algorithm.

namespace macaw::algorithms {
namespace {

// z = argmin Σ α_k·‖z − Δ_k‖. Weiszfeld's step: z ← Σ β_k·Δ_k / Σ β_k, β_k = α_k / max(ν, ‖z −
// Δ_k‖). It starts from the median of each coordinate, since a mean would start far out with an
// outlier.
class GeometricMedianServer final : public RobustServer {
 public:
  GeometricMedianServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)),
        iterations_(setup.Get<int64_t>("iterations")),
        smoothing_(setup.Get<double>("smoothing")) {}

 protected:
  FlatVector Combine(const ServerContext&, const Arrived& arrived) override {
    const Updates& updates = arrived.updates;
    FlatVector median = MedianByCoordinate(updates);
    FlatVector next(median.layout());
    std::vector<double> weights(updates.size());
    for (int64_t i = 0; i < iterations_; ++i) {
      double total = 0;
      for (size_t k = 0; k < updates.size(); ++k) {
        const double squared = SquaredDistance(updates[k].second.view(), median.view());
        weights[k] = arrived.WeightOf(k) / std::max(smoothing_, std::sqrt(squared));
        total += weights[k];
      }
      Zero(next.view());
      for (size_t k = 0; k < updates.size(); ++k)
        Axpy(weights[k] / total, updates[k].second.view(), next.view());
      std::swap(median, next);
      if (SquaredDistance(median.view(), next.view()) == 0) break;
    }
    TakeMedianBuffers(updates, median.view());
    return median;
  }

 private:
  const int64_t iterations_;
  const double smoothing_;  // ν
};

}  // namespace

Description GeometricMedian() {
  Description rule = WithReportedWeights(
      Robust("geometric_median", "the point with the least sum of distances to the updates",
             "Pillutla et al., 2022, Robust Aggregation for Federated Learning"));
  rule.parameters.push_back({.name = "iterations",
                             .default_value = int64_t{10},
                             .help = "steps of Weiszfeld's algorithm, from the median",
                             .minimum = 1,
                             .maximum = 10000});
  rule.parameters.push_back({.name = "smoothing",
                             .default_value = 1e-6,
                             .help = "ν: a nearer update weighs as if it were so far away",
                             .minimum = 1e-12});
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ_k = y − x\n"
      "server  z ← Σ β_k·Δ_k/Σ β_k, β_k = α_k/max(ν, ‖Δ_k − z‖)      from the median by "
      "coordinate\n"
      "        x ← x + η_g·z      α_k = 1; weighted: w_k";
  rule.remarks =
      "weighted = true is RFA as in the paper, with R = iterations: it withstands hostile clients "
      "with less than half of the weight, and a client says its own.";
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = LessThanHalf(Buckets(setup, setup.cohort.size))};
  };
  rule.server = MakeServer<GeometricMedianServer>;
  return WithBuckets(std::move(rule));
}

}  // namespace macaw::algorithms
