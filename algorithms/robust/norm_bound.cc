#include <cmath>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/reported_weights.h"
#include "algorithms/robust/robust.h"

// Norm thresholding: Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?",
// 2019, section 4.

namespace macaw::algorithms {
namespace {

constexpr char kBounded[] = "bounded";  // the share of a round's updates that were longer

// Δ̄ = Σ α_k·Δ_k·min(1, M/‖Δ_k‖) / Σ α_k.
class NormBoundServer final : public RobustServer {
 public:
  NormBoundServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)), bound_(setup.Get<double>("bound")) {}

 protected:
  FlatVector Combine(const ServerContext& context, const Arrived& arrived) override {
    double total = 0, longer = 0;
    for (size_t k = 0; k < arrived.size(); ++k) total += arrived.WeightOf(k);
    FlatVector mean(arrived.updates[0].second.layout());
    for (size_t k = 0; k < arrived.size(); ++k) {
      const ConstVectorView update = arrived.updates[k].second.view();
      const double norm = std::sqrt(SquaredNorm(update));
      if (norm > bound_) ++longer;
      const double kept = norm > bound_ ? bound_ / norm : 1;
      Axpy(arrived.WeightOf(k) / total * kept, update, mean.view());
    }
    TakeMedianBuffers(arrived.updates, mean.view());
    context.Report(kBounded, longer / static_cast<double>(arrived.size()));
    return mean;
  }

 private:
  const double bound_;  // M
};

}  // namespace

Description NormBound() {
  Description rule = WithReportedWeights(
      Robust("norm_bound", "the mean of the updates, each scaled down to a norm by the server",
             "Sun et al., 2019, Can You Really Backdoor Federated Learning?"));
  rule.parameters.push_back({.name = "bound",
                             .default_value = 1.0,
                             .help = "M: largest norm with which an update counts",
                             .minimum = 1e-9});
  rule.schema = [inner = rule.schema](const Setup& setup) -> absl::StatusOr<Schema> {
    absl::StatusOr<Schema> schema = inner(setup);
    if (schema.ok()) schema->metrics.push_back({.name = kBounded, .reduction = std::nullopt});
    return schema;
  };
  rule.remarks =
      "The server scales what arrives, so a hostile client cannot leave it out, as it can leave "
      "out update_clip. It bounds what model replacement by scaling reaches: one of n clients moves "
      "a round by at most M/n, with weighted = true by its part of the weights that clients say, "
      "times M. It does not tell hostile updates from others. Choose M near the "
      "median norm of honest updates; the metric `bounded` is the share that was longer.";
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ_k = y − x\n"
      "server  x ← x + η_g·Σ α_k·Δ_k·min(1, M/‖Δ_k‖)/Σ α_k      α_k = 1; weighted: w_k";
  rule.server = MakeServer<NormBoundServer>;
  return rule;
}

}  // namespace macaw::algorithms
