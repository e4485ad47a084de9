#include "algorithms/around/attack_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace macaw::algorithms {
namespace {

using HonestRows = std::span<const FlatVector* const>;

// f(i, parameter) of each element of the layout, without gaps, in order.
template <typename F>
void ForEachElement(const ParameterLayout& layout, F&& f) {
  for (const LayoutEntry& entry : layout.entries()) {
    for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i)
      f(i, entry.group == Group::kParameter);
  }
}

// Over parameters, of μ + γ·p and the honest x_i:
// ‖μ + γ·p − x_i‖² = ‖μ − x_i‖² + 2γ·⟨p, μ − x_i⟩ + γ²·‖p‖².
struct Distances {
  std::vector<double> squared;  // ‖μ − x_i‖²
  std::vector<double> along;    // ⟨p, μ − x_i⟩
  double step = 0;              // ‖p‖²

  double Of(size_t i, double gamma) const {
    return squared[i] + 2 * gamma * along[i] + gamma * gamma * step;
  }
  double Largest(double gamma) const {
    double largest = 0;
    for (size_t i = 0; i < squared.size(); ++i) largest = std::max(largest, Of(i, gamma));
    return largest;
  }
  double Sum(double gamma) const {
    double sum = 0;
    for (size_t i = 0; i < squared.size(); ++i) sum += Of(i, gamma);
    return sum;
  }
};

// The largest γ whose value is at most `limit`, by bisection from [0, beyond]: the value grows with
// γ where it is above the limit.
double LargestGamma(double limit, double beyond, auto value) {
  double low = 0, high = beyond;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (value(middle) <= limit ? low : high) = middle;
  }
  return low;
}

template <typename T>
std::vector<double> MeanOf(HonestRows honest) {
  const auto n = static_cast<double>(honest.size());
  std::vector<double> mean(honest[0]->layout()->size());
  ForEachElement(*honest[0]->layout(), [&](uint64_t i, bool) {
    for (const FlatVector* const row : honest) mean[i] += double{row->As<T>()[i]} / n;
  });
  return mean;
}

// ∇p of the paper, from the honest mean.
template <typename T>
std::vector<double> PerturbationOf(const AttackConfig& attack, HonestRows honest,
                                   const std::vector<double>& mean) {
  const ParameterLayout& layout = *honest[0]->layout();
  std::vector<double> p(mean.size());
  double squared = 0;  // ‖μ‖²
  ForEachElement(layout, [&](uint64_t i, bool parameter) {
    if (!parameter) return;
    if (attack.perturbation == "std") {
      double variance = 0;
      for (const FlatVector* const row : honest) {
        const double d = double{row->As<T>()[i]} - mean[i];
        variance += d * d / static_cast<double>(honest.size());
      }
      p[i] = -std::sqrt(variance);
    } else {
      p[i] = attack.perturbation == "unit" ? -mean[i] : mean[i] > 0 ? -1 : mean[i] < 0 ? 1 : 0;
    }
    squared += mean[i] * mean[i];
  });
  if (attack.perturbation == "unit" && squared > 0) {
    for (double& value : p) value /= std::sqrt(squared);
  }
  return p;
}

template <typename T>
Distances DistancesOf(HonestRows honest, const std::vector<double>& mean,
                      const std::vector<double>& p) {
  Distances all;
  for (const FlatVector* const row : honest) {
    double squared = 0, along = 0;
    ForEachElement(*row->layout(), [&](uint64_t i, bool parameter) {
      if (!parameter) return;
      const double d = mean[i] - double{row->As<T>()[i]};
      squared += d * d;
      along += p[i] * d;
    });
    all.squared.push_back(squared);
    all.along.push_back(along);
  }
  ForEachElement(*honest[0]->layout(), [&](uint64_t i, bool) { all.step += p[i] * p[i]; });
  return all;
}

// max_ij ‖x_i − x_j‖² for min-max; max_i Σ_j ‖x_i − x_j‖² for min-sum.
template <typename T>
double LimitOf(const AttackConfig& attack, HonestRows honest) {
  std::vector<double> sums(honest.size());
  double largest = 0;
  for (size_t i = 0; i < honest.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      double squared = 0;
      ForEachElement(*honest[i]->layout(), [&](uint64_t e, bool parameter) {
        const double d = double{honest[i]->As<T>()[e]} - double{honest[j]->As<T>()[e]};
        if (parameter) squared += d * d;
      });
      largest = std::max(largest, squared);
      sums[i] += squared;
      sums[j] += squared;
    }
  }
  return attack.kind == "min-max" ? largest : std::ranges::max(sums);
}

// Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021, equations 7 (min-max) and 8
// (min-sum): μ + γ·∇p with the largest γ within the honest clients' distances.
template <typename T>
RowsLie WithinDistances(const AttackConfig& attack, HonestRows honest) {
  const LayoutPtr layout = honest[0]->layout();
  const auto n = static_cast<double>(honest.size());
  const std::vector<double> mean = MeanOf<T>(honest);
  const std::vector<double> p = PerturbationOf<T>(attack, honest, mean);
  const Distances distances = DistancesOf<T>(honest, mean, p);
  const double limit = LimitOf<T>(attack, honest);
  RowsLie lie{.vector = FlatVector(layout)};
  if (distances.step > 0 && attack.kind == "min-max") {
    // ‖γ·p‖ ≤ ‖μ + γ·p − x_i‖ + ‖x_i − μ‖ ≤ 2·√limit.
    lie.gamma = LargestGamma(limit, 2 * std::sqrt(limit / distances.step),
                             [&](double gamma) { return distances.Largest(gamma); });
  } else if (distances.step > 0) {
    // Σ ‖μ + γ·p − x_i‖² ≥ n·‖γ·p‖².
    lie.gamma = LargestGamma(limit, std::sqrt(limit / (n * distances.step)),
                             [&](double gamma) { return distances.Sum(gamma); });
  }
  ForEachElement(*layout, [&](uint64_t i, bool parameter) {
    const double value = parameter ? mean[i] + lie.gamma * p[i] : mean[i];
    lie.vector.As<T>()[i] = static_cast<T>(value);
  });
  return lie;
}

}  // namespace

RowsLie LieFromRows(const AttackConfig& attack, std::span<const FlatVector* const> honest) {
  // Karimireddy, He, Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing",
  // ICLR 2022, the mimic attack: all copy one honest client, and so weigh it more than others.
  if (attack.kind == "mimic") return {.vector = honest[0]->Clone()};
  return DispatchDType(honest[0]->layout()->dtype(),
                       [&]<typename T>(T) { return WithinDistances<T>(attack, honest); });
}

FlatVector MeanOfRows(std::span<const FlatVector* const> honest) {
  FlatVector vector(honest[0]->layout());
  DispatchDType(vector.layout()->dtype(), [&]<typename T>(T) {
    const std::vector<double> mean = MeanOf<T>(honest);
    std::ranges::transform(mean, vector.As<T>().begin(),
                           [](double value) { return static_cast<T>(value); });
  });
  return vector;
}

}  // namespace macaw::algorithms
