#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace macaw::scheduler {

// Seconds as a non-negative combination of a few features, learned from a stream of noisy times in
// constant memory. Times are noisy in proportion to their size, so each counts by 1 ÷ prediction².
// A residual beyond `kClip` standard deviations counts as if it were at that bound (Huber 1964):
// one paused machine moves little. `kRun` clipped residuals in a row on one side are not outliers
// but a change, and what was learned before the first of them is dropped. A prior, where there is
// one, counts as `prior.weight` times of its own data. Not thread-safe.
class RobustRegression {
 public:
  static constexpr size_t kTerms = 4;
  using Vector = std::array<double, kTerms>;

  void Observe(const Vector& x, double seconds);
  // What was learned so far counts `factor` times as much.
  void Forget(double factor);

  // Brings the coefficients up to date, alone or with a prior that knows the shape: its prediction
  // times a factor that is learned too. O(1): 15 systems of at most 4 unknowns.
  void Solve() { Solve(nullptr, 0); }
  void Solve(const RobustRegression* prior, double weight);

  double Predict(const Vector& x) const;
  const Vector& coefficients() const { return theta_; }
  bool solved() const { return solved_; }
  double count() const { return sums_.count; }  // times, as far as they are not forgotten
  uint64_t seen() const { return seen_; }
  // Standard deviation of a time ÷ its prediction: the noise, and on top what is not known of the
  // coefficients.
  double noise() const { return noise_; }
  double Uncertainty() const;

 private:
  struct Sums {  // of weighted products of features, and of features and times
    std::array<Vector, kTerms> xx{};
    Vector xy{};
    double count = 0;
    void Add(const Vector& x, double seconds, double weight);
    void Scale(double factor);
  };
  static Vector NonNegative(const Sums& sums, const Vector& start);

  Sums sums_;  // of clipped times
  Sums run_;   // of the times themselves, since the run of clipped ones began
  int run_length_ = 0;
  int run_sign_ = 0;
  Vector theta_{};
  bool solved_ = false;
  double noise_ = 0.1;
  uint64_t seen_ = 0;
};

}  // namespace macaw::scheduler
