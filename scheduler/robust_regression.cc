#include "scheduler/robust_regression.h"

#include <algorithm>
#include <cmath>

namespace macaw::scheduler {
namespace {

constexpr double kLeastSeconds = 1e-9;
constexpr double kClip = 2.5;
// Added to the clip for the first time, a quarter of it for the second, …: outliers cannot be
// recognised before something is known.
constexpr double kFirstClip = 4;
constexpr int kRun = 5;
constexpr double kLeastNoise = 0.02, kMostNoise = 2;
constexpr double kNoiseRate = 0.05;    // rate of the running mean of |residual|
constexpr double kMeanToSigma = 1.25;  // σ ÷ mean |residual| of a normal distribution
constexpr double kRidge = 1e-9;   // added to the diagonal, because features may be proportional
constexpr double kBetter = 1e-9;  // another term must explain this much more of the squares

using Vector = RobustRegression::Vector;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void RobustRegression::Sums::Add(const Vector& x, double seconds, double weight) {
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) xx[i][j] += weight * x[i] * x[j];
    xy[i] += weight * x[i] * seconds;
  }
  count += 1;
}

void RobustRegression::Sums::Scale(double factor) {
  for (Vector& row : xx) {
    for (double& value : row) value *= factor;
  }
  for (double& value : xy) value *= factor;
  count *= factor;
}

void RobustRegression::Observe(const Vector& x, double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return;
  // The square of it must not underflow.
  if (seconds > 0) seconds = std::max(seconds, kLeastSeconds);
  ++seen_;
  const double predicted = Predict(x);
  if (!solved_ || !(predicted > 0)) {
    sums_.Add(x, seconds, seconds > 0 ? 1 / (seconds * seconds) : 0);
    return;
  }
  const double residual = seconds / predicted - 1;
  const auto age = static_cast<double>(seen_);
  const double bound = kClip * noise_ + kFirstClip / (age * age);
  const double clipped = std::clamp(residual, -bound, bound);
  const double weight = 1 / (predicted * predicted);
  const int sign = residual > bound ? 1 : residual < -bound ? -1 : 0;
  if (sign != run_sign_ || sign == 0) {
    run_ = {};
    run_length_ = 0;
    run_sign_ = sign;
  }
  if (sign != 0) {
    run_.Add(x, seconds, weight);
    ++run_length_;
  }
  noise_ += kNoiseRate * (kMeanToSigma * std::abs(clipped) - noise_);
  noise_ = std::clamp(noise_, kLeastNoise, kMostNoise);
  sums_.Add(x, predicted * (1 + clipped), weight);
  if (run_length_ < kRun) return;
  sums_ = run_;
  run_ = {};
  run_length_ = 0;
  run_sign_ = 0;
  Solve();
}

void RobustRegression::Forget(double factor) {
  sums_.Scale(factor);
  run_.Scale(factor);
}

void RobustRegression::Solve(const RobustRegression* prior, double weight) {
  Sums sums = sums_;
  if (prior != nullptr && prior->solved() && prior->count() > 0) {
    // First the factor between this regression and the prior: least squares in one unknown, drawn
    // towards 1 with the weight of half a time. Then the prior's data is added, with its
    // predictions times that factor, at the weights of this regression.
    const Vector& shape = prior->theta_;
    double squares = 0;
    for (size_t i = 0; i < kTerms; ++i) squares += shape[i] * Dot(sums.xx[i], shape);
    double factor = 1;
    if (squares > 0 && sums.count > 0) {
      const double own = sums.count / squares;  // makes the square of one time 1
      factor = (Dot(shape, sums.xy) * own + 0.5) / (sums.count + 0.5);
    }
    const double scale = weight / (prior->count() * factor * factor);
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j < kTerms; ++j) {
        sums.xx[i][j] += scale * prior->sums_.xx[i][j];
        sums.xy[i] += scale * prior->sums_.xx[i][j] * shape[j] * factor;
      }
    }
  } else if (sums.count == 0) {
    return;
  }
  theta_ = NonNegative(sums, theta_);
  solved_ = std::ranges::any_of(theta_, [](double value) { return value > 0; });
}

// For every subset of the terms, the least squares solution by Cholesky. The best of those without
// a negative coefficient is the non-negative least squares solution.
Vector RobustRegression::NonNegative(const Sums& sums, const Vector& start) {
  Vector scale{};
  for (size_t i = 0; i < kTerms; ++i)
    scale[i] = sums.xx[i][i] > 0 ? 1 / std::sqrt(sums.xx[i][i]) : 0;
  Vector best = start;
  double most = 0;  // sum of squares explained
  for (uint32_t chosen = 1; chosen < (1u << kTerms); ++chosen) {
    std::array<size_t, kTerms> term{};
    size_t n = 0;
    for (size_t i = 0; i < kTerms; ++i) {
      if ((chosen >> i & 1) != 0) term[n++] = i;
    }
    std::array<Vector, kTerms> lower{};
    Vector solution{};
    bool usable = true;
    for (size_t i = 0; i < n && usable; ++i) {
      usable = scale[term[i]] > 0;
      for (size_t j = 0; j <= i && usable; ++j) {
        double value = sums.xx[term[i]][term[j]] * scale[term[i]] * scale[term[j]];
        if (i == j) value += kRidge;
        for (size_t k = 0; k < j; ++k) value -= lower[i][k] * lower[j][k];
        if (i == j) {
          usable = value > kRidge / 2;
          lower[i][i] = std::sqrt(value);
        } else {
          lower[i][j] = value / lower[j][j];
        }
      }
    }
    if (!usable) continue;
    for (size_t i = 0; i < n; ++i) {
      solution[i] = sums.xy[term[i]] * scale[term[i]];
      for (size_t k = 0; k < i; ++k) solution[i] -= lower[i][k] * solution[k];
      solution[i] /= lower[i][i];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) solution[i] -= lower[k][i] * solution[k];
      solution[i] /= lower[i][i];
    }
    Vector theta{};
    double explained = 0;
    for (size_t i = 0; i < n; ++i) {
      usable = usable && solution[i] >= 0;
      theta[term[i]] = solution[i] * scale[term[i]];
      explained += theta[term[i]] * sums.xy[term[i]];
    }
    if (usable && explained > most * (1 + kBetter)) {
      most = explained;
      best = theta;
    }
  }
  return best;
}

double RobustRegression::Predict(const Vector& x) const { return Dot(theta_, x); }

double RobustRegression::Uncertainty() const {
  return noise_ * std::sqrt(1 + static_cast<double>(kTerms) / (sums_.count + 1));
}

}  // namespace macaw::scheduler
