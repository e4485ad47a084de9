#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/fraction.h"

// Rules that a minority of malicious clients cannot steer. They see every client's own update (a
// collected channel, ordered by client id), but not its weight, because a client could lie about
// it. Coordinate-wise median and trimmed mean: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust
// Distributed Learning: Towards Optimal Statistical Rates", ICML 2018, the two definitions of those
// names. Krum and Multi-Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with
// Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017, the Krum function. Geometric
// median: Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE TSP 2022,
// the smoothed Weiszfeld algorithm. Centered clipping: Karimireddy, He, Jaggi, "Learning from
// History for Byzantine Robust Optimization", ICML 2021, algorithm 2.

namespace macaw::algorithms {
namespace {

using Updates = std::vector<std::pair<ClientId, FlatVector>>;

class RobustServer : public MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const Updates& updates = ChannelOf(aggregate, "delta").collected;
    const FlatVector delta = updates.empty() ? FlatVector() : Combine(updates);
    if (delta.empty()) return AfterApply::kRoundDone;
    if (absl::Status status = Move(context.round, delta); !status.ok()) return status;
    return AfterApply::kRoundDone;
  }

 protected:
  // Combines the updates into one. Empty if there are too few of them; the model then stays.
  virtual FlatVector Combine(const Updates& updates) = 0;
};

// Applies f to the sorted values of each coordinate, of all tensors or of the buffers only.
template <typename F>
void ByCoordinate(const Updates& updates, bool buffers_only, VectorView out, F&& f) {
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    std::vector<T> values(updates.size());
    for (const LayoutEntry& entry : out.layout->entries()) {
      if (buffers_only && entry.group == Group::kParameter) continue;
      for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
        for (size_t k = 0; k < values.size(); ++k) values[k] = updates[k].second.As<T>()[i];
        std::ranges::sort(values);
        out.As<T>()[i] = static_cast<T>(f(std::span<const T>(values)));
      }
    }
  });
}

double MeanOf(auto values) {
  double sum = 0;
  for (const auto value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double MedianOf(auto sorted) {
  const size_t n = sorted.size();  // if even: the mean of the two middle values
  return MeanOf(sorted.subspan((n - 1) / 2, n % 2 == 0 ? 2 : 1));
}

FlatVector MedianByCoordinate(const Updates& updates) {
  FlatVector median(updates[0].second.layout());
  ByCoordinate(updates, /*buffers_only=*/false, median.view(),
               [](auto sorted) { return MedianOf(sorted); });
  return median;
}

// For rules that judge an update by its distance. Buffers are not part of a distance, so an update
// with ordinary parameters could bring any statistics.
void TakeMedianBuffers(const Updates& updates, VectorView out) {
  ByCoordinate(updates, /*buffers_only=*/true, out, [](auto sorted) { return MedianOf(sorted); });
}

class MedianServer final : public RobustServer {
 public:
  using RobustServer::RobustServer;

 protected:
  FlatVector Combine(const Updates& updates) override { return MedianByCoordinate(updates); }
};

class TrimmedMeanServer final : public RobustServer {
 public:
  TrimmedMeanServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)), beta_(setup.Get<double>("beta")) {}

 protected:
  FlatVector Combine(const Updates& updates) override {
    FlatVector mean(updates[0].second.layout());
    ByCoordinate(updates, /*buffers_only=*/false, mean.view(), [this](auto sorted) {
      const size_t n = sorted.size();
      const size_t cut = FloorOf(beta_, n);
      return MeanOf(sorted.subspan(cut, n - 2 * cut));
    });
    return mean;
  }

 private:
  const double beta_;
};

// Over the parameters only: statistics have another scale and would dominate.
double SquaredDistance(ConstVectorView a, ConstVectorView b) {
  return DispatchDType(a.dtype(), [&]<typename T>(T) {
    double sum = 0;
    for (const LayoutEntry& entry : a.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<const T> left = a.As<T>().subspan(entry.offset, entry.size);
      const std::span<const T> right = b.As<T>().subspan(entry.offset, entry.size);
      for (size_t i = 0; i < left.size(); ++i) {
        const double d = double{left[i]} - double{right[i]};
        sum += d * d;
      }
    }
    return sum;
  });
}

class KrumServer final : public RobustServer {
 public:
  KrumServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)),
        f_(static_cast<size_t>(setup.Get<int64_t>("f"))),
        m_(static_cast<size_t>(setup.Get<int64_t>("m"))) {}

 protected:
  FlatVector Combine(const Updates& updates) override {
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

// z = argmin Σ ‖z − Δ_k‖. Weiszfeld's step: z ← Σ w_k·Δ_k / Σ w_k, w_k = 1 / max(ν, ‖z − Δ_k‖). It
// starts from the median of each coordinate, since a mean would start far out with an outlier.
class GeometricMedianServer final : public RobustServer {
 public:
  GeometricMedianServer(const Setup& setup, FlatVector model)
      : RobustServer(setup, std::move(model)),
        iterations_(setup.Get<int64_t>("iterations")),
        smoothing_(setup.Get<double>("smoothing")) {}

 protected:
  FlatVector Combine(const Updates& updates) override {
    FlatVector median = MedianByCoordinate(updates);
    FlatVector next(median.layout());
    std::vector<double> weights(updates.size());
    for (int64_t i = 0; i < iterations_; ++i) {
      double total = 0;
      for (size_t k = 0; k < updates.size(); ++k) {
        const double squared = SquaredDistance(updates[k].second.view(), median.view());
        weights[k] = 1 / std::max(smoothing_, std::sqrt(squared));
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
  FlatVector Combine(const Updates& updates) override {
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

absl::Status CheckKrum(const Setup& setup) {
  const int64_t n = static_cast<int64_t>(setup.cohort.size);
  const int64_t f = setup.Get<int64_t>("f");
  const int64_t m = setup.Get<int64_t>("m");
  if (n < 2 * f + 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("f = ", f, " hostile clients need a cohort of 2f+3 = ", 2 * f + 3,
                     " or more, not cohort.size = ", n));
  }
  if (m > n - f) {
    return absl::InvalidArgumentError(absl::StrCat(
        "m = ", m, " chosen of ", n, " leaves fewer than f = ", f, " out: use m <= ", n - f));
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

// The note on a trimmed mean that trims nothing; empty if it trims.
std::string TrimsNothingNote(const Setup& setup) {
  const auto beta = setup.Get<double>("beta");
  if (beta == 0 || FloorOf(beta, std::max(setup.cohort.size, MostClients(setup))) > 0) return "";
  return absl::StrCat("trimmed_mean cuts off ⌊beta·n⌋ = 0 of ", setup.cohort.size,
                      " clients at each end, so it is the plain mean: raise cohort.size or "
                      "algorithm.trimmed_mean.beta");
}

uint64_t LessThanHalf(uint64_t clients) { return clients == 0 ? 0 : (clients - 1) / 2; }

Description Robust(std::string name, std::string summary, std::string paper) {
  Description rule = FedAvg();
  rule.name = std::move(name);
  rule.summary = std::move(summary);
  rule.paper = std::move(paper);
  rule.notes = [](const Setup& setup) {
    return PlainMeanNote(setup, "set cohort.weight = \"uniform\" for both");
  };
  rule.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.up[0].reduction = aggregation::Reduction::kCollect;
    return schema;
  };
  return rule;
}

constexpr char kYin[] =
    "Yin et al., 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates";

}  // namespace

Description Median() {
  Description rule =
      Robust("median", "the median of the updates, coordinate by coordinate, unweighted", kYin);
  rule.formula =
      "client  y ← y − η·g\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·median(Δ)      of each coordinate";
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = LessThanHalf(setup.cohort.size)};
  };
  rule.server = MakeServer<MedianServer>;
  return rule;
}

Description TrimmedMean() {
  Description rule =
      Robust("trimmed_mean", "the mean of each coordinate without its extremes, unweighted", kYin);
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
    return {.clients = FloorOf(setup.Get<double>("beta"), setup.cohort.size),
            .key = "algorithm.trimmed_mean.beta"};
  };
  rule.notes = [mean = rule.notes](const Setup& setup) {
    std::vector<std::string> notes = mean(setup);
    const std::string note = TrimsNothingNote(setup);
    if (!note.empty()) notes.push_back(note);
    return notes;
  };
  rule.server = MakeServer<TrimmedMeanServer>;
  return rule;
}

Description GeometricMedian() {
  Description rule = Robust("geometric_median",
                            "the point with the least sum of distances to the updates, unweighted",
                            "Pillutla et al., 2022, Robust Aggregation for Federated Learning");
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
      "server  z ← Σ w_k·Δ_k/Σ w_k, w_k = 1/max(ν, ‖Δ_k − z‖)      from the median by coordinate\n"
      "        x ← x + η_g·z";
  rule.withstands = [](const Setup& setup) -> Withstood {
    return {.clients = LessThanHalf(setup.cohort.size)};
  };
  rule.server = MakeServer<GeometricMedianServer>;
  return rule;
}

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
  return rule;
}

Description Krum() {
  Description rule = Robust("krum", "the update(s) nearest to their neighbours, unweighted",
                            "Blanchard et al., 2017, Machine Learning with Adversaries: Byzantine "
                            "Tolerant Gradient Descent");
  rule.parameters.push_back({.name = "f",
                             .default_value = int64_t{1},
                             .help = "hostile clients of a cohort to withstand",
                             .minimum = 0});
  rule.parameters.push_back({.name = "m",
                             .default_value = int64_t{1},
                             .help = "best updates to average: 1 Krum, more Multi-Krum",
                             .minimum = 1});
  rule.check = CheckKrum;
  rule.needs = [](const Setup& setup) -> Needed {
    const int64_t f = setup.Get<int64_t>("f");
    return {.clients = static_cast<uint64_t>(2 * f + 3),
            .why = absl::StrCat("2f+3 with algorithm.krum.f = ", f)};
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
  return rule;
}

}  // namespace macaw::algorithms
