#include <cmath>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/robust.h"

// Centered clipping: Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust
// Optimization", ICML 2021, algorithm 2.

namespace macaw::algorithms {
namespace {

// v ← v + 1/n·Σ (Δ_k − v)·min(1, τ/‖Δ_k − v‖), from the v of the last round: one update moves it
// by at most τ/n.
class CenteredClippingServer final : public RobustServer {
 public:
  CenteredClippingServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)),
        iterations_(setup.Get<int64_t>("iterations")),
        radius_(setup.Get<double>("radius")),
        center_(kept_.Vector("center", FlatVector(setup.layout))) {}

 protected:
  FlatVector Combine(const ServerContext&, const Arrived& arrived) override {
    const Updates& updates = arrived.updates;
    const LayoutPtr layout = updates[0].second.layout();
    FlatVector difference(layout), change(layout);
    for (int64_t i = 0; i < iterations_; ++i) {
      Zero(change.view());
      for (const auto& [id, update] : updates) {
        Subtract(update.view(), center_, difference.view());
        const double distance = std::sqrt(SquaredDistance(update.view(), center_));
        const double kept = distance > radius_ ? radius_ / distance : 1;
        Axpy(kept / static_cast<double>(updates.size()), difference.view(), change.view());
      }
      Add(change.view(), center_);
    }
    FlatVector combined(layout);
    Copy(center_, combined.view());
    TakeMedianBuffers(updates, combined.view());
    return combined;
  }

 private:
  const int64_t iterations_;
  const double radius_;      // τ
  const VectorView center_;  // v
};

}  // namespace

Description CenteredClipping() {
  Description rule = Robust(
      "centered_clipping", "the mean of the updates, each clipped to a ball around the last result",
      "Karimireddy et al., 2021, Learning from History for Byzantine Robust Optimization");
  rule.parameters.push_back({.name = "radius",
                             .default_value = 1.0,
                             .help = "τ: of the ball, as a norm of an update",
                             .minimum = 1e-9});
  rule.parameters.push_back({.name = "iterations",
                             .default_value = int64_t{1},
                             .help = "how often the ball moves to its result in a round",
                             .minimum = 1,
                             .maximum = 10000});
  rule.remarks =
      "A hostile client moves a round's result by at most iterations·τ/n. Choose a radius near "
      "the norm of honest clients' differences: a larger one withstands less, and a smaller one "
      "needs more rounds or iterations to follow. The paper has clients send a momentum; here they "
      "send the displacement of their local steps.";
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ_k = y − x\n"
      "server  v ← v + 1/n·Σ (Δ_k − v)·min(1, τ/‖Δ_k − v‖)      n: the updates that came\n"
      "        x ← x + η_g·v";
  rule.server = MakeServer<CenteredClippingServer>;
  return WithBuckets(std::move(rule));
}

}  // namespace macaw::algorithms
