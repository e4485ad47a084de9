#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/robust.h"
#include "core/fraction.h"

// Coordinate-wise trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed
// Learning: Towards Optimal Statistical Rates", ICML 2018, the definition of that name.

namespace macaw::algorithms {
namespace {

class TrimmedMeanServer final : public RobustServer {
 public:
  TrimmedMeanServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)), beta_(setup.Get<double>("beta")) {}

 protected:
  FlatVector Combine(const ServerContext&, const Arrived& arrived) override {
    FlatVector mean(arrived.updates[0].second.layout());
    ByCoordinate(arrived.updates, /*buffers_only=*/false, mean.view(), [this](auto sorted) {
      const size_t n = sorted.size();
      const size_t cut = FloorOf(beta_, n);
      return MeanOf(sorted.subspan(cut, n - 2 * cut));
    });
    return mean;
  }

 private:
  const double beta_;
};

// The note on a trimmed mean that trims nothing; empty if it trims.
std::string TrimsNothingNote(const Setup& setup) {
  const auto beta = setup.Get<double>("beta");
  const uint64_t most = std::max(setup.cohort.size, MostClients(setup));
  if (beta == 0 || FloorOf(beta, Buckets(setup, most)) > 0) return "";
  return absl::StrCat("trimmed_mean cuts off ⌊beta·n⌋ = 0 of ", Buckets(setup, setup.cohort.size),
                      BucketSize(setup) > 1 ? " buckets" : " clients",
                      " at each end, so it is the plain mean: raise cohort.size or "
                      "algorithm.trimmed_mean.beta");
}

}  // namespace

Description TrimmedMean() {
  Description rule = Robust(
      "trimmed_mean", "the mean of each coordinate without its extremes, unweighted",
      "Yin et al., 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates");
  rule.parameters.push_back({.name = "beta",
                             .default_value = 0.1,
                             .help = "fraction of the clients cut off at each end",
                             .minimum = 0,
                             .maximum = 0.499});
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·(plain mean of Δ without the ⌊β·n⌋ least and largest)\n"
      "        of each coordinate; n: the updates that came";
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = FloorOf(setup.Get<double>("beta"), Buckets(setup, setup.cohort.size)),
            .key = "algorithm.trimmed_mean.beta"};
  };
  rule.notes = [mean = rule.notes](const Setup& setup) {
    std::vector<std::string> notes = mean(setup);
    const std::string note = TrimsNothingNote(setup);
    if (!note.empty()) notes.push_back(note);
    return notes;
  };
  rule.server = MakeServer<TrimmedMeanServer>;
  return WithBuckets(std::move(rule));
}

}  // namespace macaw::algorithms
