#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/robust/bucketing.h"
#include "algorithms/robust/robust.h"

// Krum and Multi-Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with
// Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017, the Krum function.

namespace macaw::algorithms {
namespace {

class KrumServer final : public RobustServer {
 public:
  KrumServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)),
        f_(static_cast<size_t>(setup.Get<int64_t>("f"))),
        m_(static_cast<size_t>(setup.Get<int64_t>("m"))) {}

 protected:
  FlatVector Combine(const ServerContext&, const Arrived& arrived) override {
    const Updates& updates = arrived.updates;
    const size_t n = updates.size();
    if (n < 2 * f_ + 3) return {};  // clients dropped out: with so few, no choice is safe
    const std::vector<double> scores = Scores(updates);
    std::vector<size_t> best(n);
    for (size_t i = 0; i < n; ++i) best[i] = i;
    // Ties go to the smaller client id, so that the choice is the same everywhere.
    std::ranges::stable_sort(best, {}, [&](size_t i) { return scores[i]; });
    best.resize(std::min(m_, n - f_));  // clients dropped out: no more than can be honest
    std::ranges::sort(best);            // add them in the order of ids
    FlatVector mean = updates[best[0]].second.Clone();
    for (size_t i = 1; i < best.size(); ++i) Add(updates[best[i]].second.view(), mean.view());
    if (best.size() > 1) Scale(1 / static_cast<double>(best.size()), mean.view());
    return mean;
  }

 private:
  // s(i): Σ of the n − f − 2 smallest squared distances from i to others.
  std::vector<double> Scores(const Updates& updates) const {
    const size_t n = updates.size();
    std::vector<std::vector<double>> distances(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        const double d = SquaredDistance(updates[i].second.view(), updates[j].second.view());
        distances[i].push_back(d);
        distances[j].push_back(d);
      }
    }
    std::vector<double> scores(n);
    for (size_t i = 0; i < n; ++i) {
      std::ranges::sort(distances[i]);
      for (size_t k = 0; k < n - f_ - 2; ++k) scores[i] += distances[i][k];
    }
    return scores;
  }

  const size_t f_;
  const size_t m_;
};

absl::Status CheckKrum(const Setup& setup) {
  const auto n = static_cast<int64_t>(Buckets(setup, setup.cohort.size));
  const std::string buckets =
      BucketSize(setup) == 1
          ? ""
          : absl::StrCat(" in ", n, " buckets of bucket_size = ", BucketSize(setup));
  const int64_t f = setup.Get<int64_t>("f");
  const int64_t m = setup.Get<int64_t>("m");
  if (n < 2 * f + 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("f = ", f, " hostile clients need a cohort of 2f+3 = ", 2 * f + 3,
                     buckets.empty() ? "" : " buckets",
                     " or more, not cohort.size = ", setup.cohort.size, buckets));
  }
  if (m > n - f) {
    return absl::InvalidArgumentError(
        absl::StrCat("m = ", m, " chosen of ", n, buckets.empty() ? "" : " buckets",
                     " leaves fewer than f = ", f, " out: use m <= ", n - f));
  }
  return absl::OkStatus();
}

// The note on rounds with too few clients for the rule; empty if they are rare.
std::string FewClientsNote(const Setup& setup, const Needed& needed) {
  const double mean = MeanClients(setup);
  const bool varies =
      setup.cohort.sampling == "poisson" || setup.cohort.sampling == "available" ||
      (setup.cohort.straggler_policy == "drop" && setup.cohort.straggler_fraction > 0);
  // Two standard deviations, as of a Poisson number.
  if (!varies || mean - 2 * std::sqrt(mean) >= static_cast<double>(needed.clients)) return "";
  return absl::StrCat("a round counts ", absl::StrFormat("%.3g", mean),
                      " clients on average, and one with fewer than ", needed.clients, " (",
                      needed.why, ") leaves the model as it is: raise cohort.size");
}

}  // namespace

Description Krum() {
  Description rule = Robust("krum", "the update(s) nearest to their neighbours, unweighted",
                            "Blanchard et al., 2017, Machine Learning with Adversaries: Byzantine "
                            "Tolerant Gradient Descent");
  rule.parameters.push_back({.name = "f",
                             .default_value = int64_t{1},
                             .help = "hostile clients of a cohort to withstand",
                             .minimum = 0,
                             .maximum = 1e6});
  rule.parameters.push_back({.name = "m",
                             .default_value = int64_t{1},
                             .help = "best updates to average: 1 Krum, more Multi-Krum",
                             .minimum = 1,
                             .maximum = 1e6});
  rule.check = CheckKrum;
  rule.needs = [](const Setup& setup) -> Needed {
    const auto f = static_cast<uint64_t>(setup.Get<int64_t>("f"));
    const uint64_t size = BucketSize(setup);
    return {.clients = (2 * f + 2) * size + 1,  // the last bucket may have one client
            .why = absl::StrCat("2f+3 ",
                                size == 1 ? "" : absl::StrCat("buckets of ", size, " clients "),
                                "with algorithm.krum.f = ", f)};
  };
  rule.notes = [mean = rule.notes, needs = rule.needs](const Setup& setup) {
    std::vector<std::string> notes = mean(setup);
    const std::string note = FewClientsNote(setup, needs(setup));
    if (!note.empty()) notes.push_back(note);
    return notes;
  };
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = static_cast<uint64_t>(setup.Get<int64_t>("f")), .key = "algorithm.krum.f"};
  };
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ_k = y − x\n"
      "server  s_k = Σ ‖Δ_k − Δ_j‖² over the n − f − 2 nearest j      n: the updates that came\n"
      "        x ← x + η_g·(plain mean of the m Δ_k with the least s_k)";
  rule.server = MakeServer<KrumServer>;
  return WithBuckets(std::move(rule));
}

}  // namespace macaw::algorithms
