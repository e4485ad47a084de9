#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/robust.h"

// Coordinate-wise median: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed
// Learning: Towards Optimal Statistical Rates", ICML 2018, the definition of that name.

namespace macaw::algorithms {
namespace {

class MedianServer final : public RobustServer {
 public:
  using RobustServer::RobustServer;

 protected:
  FlatVector Combine(const ServerContext&, const Arrived& arrived) override {
    return MedianByCoordinate(arrived.updates);
  }
};

}  // namespace

Description Median() {
  Description rule = Robust(
      "median", "the median of the updates, coordinate by coordinate, unweighted",
      "Yin et al., 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates");
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·median(Δ)      of each coordinate";
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = LessThanHalf(Buckets(setup, setup.cohort.size))};
  };
  rule.server = MakeServer<MedianServer>;
  return WithBuckets(std::move(rule));
}

}  // namespace macaw::algorithms
