#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace macaw::scheduler {

// Predicts seconds as a non-negative combination of a few features, learned from a stream of noisy
// times in constant memory. The noise is proportional to the time, so each time has the weight 1 ÷
// prediction². A residual beyond `kClip` standard deviations is clipped to that bound (Huber 1964),
// so that one paused machine has little effect. `kRun` clipped residuals in a row on the same side
// are a change, not outliers: everything learned before the first of them is dropped. A prior, if
// there is one, counts as `prior.weight` times of its own data. Not thread-safe.
class RobustRegression {
 public:
  static constexpr size_t kTerms = 4;
  using Vector = std::array<double, kTerms>;

  void Observe(const Vector& x, double seconds);
  // Multiplies the weight of everything learned so far by `factor`.
  void Forget(double factor);

  // Updates the coefficients, without a prior or with one. A prior contributes its prediction times
  // a factor that is learned, too. O(1): 15 systems of at most 4 unknowns.
  void Solve() { Solve(nullptr, 0); }
  void Solve(const RobustRegression* prior, double weight);

  double Predict(const Vector& x) const;
  const Vector& coefficients() const { return theta_; }
  bool solved() const { return solved_; }
  double count() const { return sums_.count; }  // effective number of times, after forgetting
  uint64_t seen() const { return seen_; }
  // Standard deviation of a time relative to its prediction: the noise, and the uncertainty of the
  // coefficients.
  double noise() const { return noise_; }
  double Uncertainty() const;

 private:
  struct Sums {  // weighted products of features with features and with times
    std::array<Vector, kTerms> xx{};
    Vector xy{};
    double count = 0;
    void Add(const Vector& x, double seconds, double weight);
    void Scale(double factor);
  };
  static Vector NonNegative(const Sums& sums, const Vector& start);

  Sums sums_;  // over clipped times
  Sums run_;   // over the unclipped times since the current run of clipped ones began
  int run_length_ = 0;
  int run_sign_ = 0;
  Vector theta_{};
  bool solved_ = false;
  double noise_ = 0.1;
  uint64_t seen_ = 0;
};

}  // namespace macaw::scheduler
