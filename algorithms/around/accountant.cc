#include "algorithms/around/accountant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

namespace macaw::algorithms {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTails = 12;  // deviations: beyond is less than 1e-32
constexpr double kPointsADeviation = 25;
// Where ε says nothing, it is not computed closely.
constexpr double kMostEpsilon = 200, kLeastNoise = 0.05;
constexpr size_t kMostCells = size_t{1} << 20;
constexpr double kMostOrder = 0x1p18;
// What rounding adds to δ, a round: of the losses' probabilities, which are differences of numbers
// near 1, and of the transform, whose numbers are taken to the power of the rounds. At least a
// hundred times what was seen.
constexpr double kRoundOff = 1e-15;

double NormalBelow(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// The privacy loss of a client's presence at a sum of x: log((1 − q) + q·exp((2x − 1)/(2z²))).
double LossAt(double x, double q, double z) {
  const double exponent = (2 * x - 1) / (2 * z * z);
  if (q == 1) return exponent;
  const double a = std::log1p(-q), b = std::log(q) + exponent;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// Where the loss is y; −∞ where it is never so small.
double SumWithLoss(double y, double q, double z) {
  if (q == 1) return z * z * y + 0.5;
  // log((e^y − (1 − q))/q)
  const double least = std::log1p(-q);
  if (y <= least) return -kInfinity;
  return z * z * (y + std::log1p(-std::exp(least - y)) - std::log(q)) + 0.5;
}

// ∫ f(x)·N(0, z²)(x) dx from `begin` to `end`. The trapezoidal rule converges faster than any power
// for such functions.
template <typename F>
double Integrate(double begin, double end, double z, const F& f) {
  const double step = z / kPointsADeviation;
  double sum = 0;
  for (double x = begin; x <= end; x += step) sum += f(x) * std::exp(-x * x / (2 * z * z));
  return sum * step / (z * std::sqrt(2 * std::numbers::pi));
}

// log Σ exp(logs[i])
double LogOfSum(const std::vector<double>& logs) {
  const double largest = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double log : logs) sum += std::exp(log - largest);
  return largest + std::log(sum);
}

// 1/(α − 1) · log E (mixture / normal)^α over the normal distribution. For whole orders the mean is
// a binomial sum. Logarithms, because it may be beyond any double.
double RenyiDivergence(double order, double q, double z) {
  if (q == 1) return order / (2 * z * z);
  std::vector<double> logs;
  if (order == std::floor(order)) {
    for (double k = 0; k <= order; ++k) {
      logs.push_back(std::lgamma(order + 1) - std::lgamma(k + 1) - std::lgamma(order - k + 1) +
                     (order - k) * std::log1p(-q) + k * std::log(q) + (k * k - k) / (2 * z * z));
    }
    return std::max(0.0, LogOfSum(logs) / (order - 1));
  }
  const double step = z / kPointsADeviation;
  for (double x = -kTails * z; x <= order + kTails * z; x += step)
    logs.push_back(order * LossAt(x, q, z) - x * x / (2 * z * z));
  const double mean = LogOfSum(logs) + std::log(step / (z * std::sqrt(2 * std::numbers::pi)));
  return std::max(0.0, mean / (order - 1));
}

// The distribution of a round's loss, from the side of those who are there (`removed`: the client
// is, and is compared with its absence) or of those who are not.
struct Loss {
  double q, z;
  bool removed;

  // The probability that it is at most y.
  double Below(double y) const {
    if (removed) {
      const double x = SumWithLoss(y, q, z);
      if (x == -kInfinity) return 0;
      return (1 - q) * NormalBelow(x / z) + q * NormalBelow((x - 1) / z);
    }
    return NormalBelow(-SumWithLoss(-y, q, z) / z);  // 1 where the loss is never so large
  }
  // Its mean where it lies within ±most, times the probability of that.
  double MeanWithin(double most) const {
    return Integrate(-kTails * z, kTails * z + 1, z, [&](double x) {
      const double loss = LossAt(x, q, z);
      if (std::abs(loss) > most) return 0.0;
      return removed ? loss * std::exp(loss) : -loss;
    });
  }
};

using Complex = std::complex<double>;

// In place; the size is a power of two. `sign`: −1 forward, 1 back (without the division).
void Transform(std::vector<Complex>& values, int sign) {
  const size_t n = values.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(values[i], values[j]);
  }
  std::vector<Complex> roots(n / 2);
  for (size_t i = 0; i < n / 2; ++i) {
    roots[i] = std::polar(
        1.0, sign * 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n));
  }
  for (size_t length = 2; length <= n; length <<= 1) {
    const size_t stride = n / length;
    for (size_t begin = 0; begin < n; begin += length) {
      for (size_t k = 0; k < length / 2; ++k) {
        Complex& low = values[begin + k];
        Complex& high = values[begin + k + length / 2];
        const Complex product = high * roots[k * stride];
        high = low - product;
        low += product;
      }
    }
  }
}

// The least ε ≥ 0 for which the loss exceeds it by no more than δ: E (1 − e^(ε − y))₊ = δ. The
// losses are first, first + step, ….
double EpsilonOf(const std::vector<double>& probabilities, double first, double step,
                 double delta) {
  double above = 0, discounted = 0;  // Σ p and Σ p·e^(−y) over losses above ε
  for (size_t i = probabilities.size(); i-- > 0;) {
    const double y = first + static_cast<double>(i) * step;
    if (y <= 0) break;
    above += probabilities[i];
    discounted += probabilities[i] * std::exp(-y);
    const double next = std::max(0.0, y - step);
    if (above - std::exp(next) * discounted < delta) continue;
    return std::max(next, std::log((above - delta) / discounted));
  }
  return 0;
}

// ε of `rounds` such losses; within ±error of the exact one with δ ± slack. `most`: the losses that
// are represented.
double ComposedEpsilon(const Loss& loss, double rounds, double delta, double error, double slack,
                       double most) {
  const double step = error / std::sqrt(rounds / 2 * std::log(12 / slack));
  const auto half = static_cast<size_t>(std::ceil(most / step));
  const size_t cells = std::bit_ceil(2 * half + 1);
  std::vector<Complex> values(cells);
  double mass = 0, mean = 0;
  const double edge = (static_cast<double>(half) + 0.5) * step;
  double below = loss.Below(-edge);
  for (size_t i = 0; i <= 2 * half; ++i) {
    const double at = (static_cast<double>(i) - static_cast<double>(half)) * step;
    const double next = loss.Below(at + step / 2);
    const double probability = next - below;
    below = next;
    // A negative loss is at the end of the circle.
    values[i >= half ? i - half : cells - (half - i)] = probability;
    mass += probability;
    mean += probability * at;
  }
  for (Complex& value : values) value /= mass;
  const double shift = loss.MeanWithin(edge) / mass - mean / mass;
  Transform(values, -1);
  for (Complex& value : values) {
    const double size = std::abs(value);
    value = size == 0 ? 0 : std::polar(std::pow(size, rounds), rounds * std::arg(value));
  }
  Transform(values, 1);
  std::vector<double> probabilities(cells);
  const size_t middle = cells / 2;
  for (size_t i = 0; i < cells; ++i) {
    probabilities[(i + middle) % cells] = values[i].real() / static_cast<double>(cells);
  }
  const double first = -static_cast<double>(middle) * step + rounds * shift;
  return EpsilonOf(probabilities, first, step, delta - slack) + error;
}

}  // namespace

Accountant::Accountant(double q, double z) : q_(q), z_(z) {
  // Orders between whole ones are for ε of several, which is more than that where noise is so low.
  const bool between = z >= kLeastNoise;
  for (int tenth = 11; between && tenth < 110; ++tenth) {
    if (tenth % 10 != 0) orders_.push_back(tenth / 10.0);
  }
  for (int whole = 2; whole < 64; ++whole) orders_.push_back(whole);
  for (double order = 64; order < 1100; order = std::ceil(order * 1.1)) orders_.push_back(order);
  // The conversion alone costs log(1/(δ·α))/α, so an ε below 0.01 needs orders of thousands. With a
  // low noise the divergences of such orders are beyond use.
  for (double order = 2048; order <= std::min(kMostOrder, 20 * z * z); order *= 2)
    orders_.push_back(order);
  for (const double order : orders_) renyi_.push_back(RenyiDivergence(order, q, z));
}

double Accountant::RenyiEpsilon(double rounds, double delta) const {
  double least = kInfinity;
  for (size_t i = 0; i < orders_.size(); ++i) {
    const double order = orders_[i];
    least = std::min(
        least, rounds * renyi_[i] + std::log1p(-1 / order) - std::log(delta * order) / (order - 1));
  }
  return std::max(0.0, least);
}

double Accountant::Epsilon(uint64_t rounds, double delta) const {
  const double renyi = RenyiEpsilon(static_cast<double>(rounds), delta);
  if (rounds == 0 || renyi == 0) return 0;
  const double first = EpsilonWithin(std::min(0.005 * renyi, 0.1), rounds, delta);
  // Where the other bound is far too high, so is an error that is a part of it.
  return first > 0.8 * renyi ? first : std::min(first, EpsilonWithin(0.005 * first, rounds, delta));
}

double Accountant::EpsilonWithin(double error, uint64_t rounds, double delta) const {
  const auto count = static_cast<double>(rounds);
  const double renyi = RenyiEpsilon(count, delta);
  if (renyi > kMostEpsilon || z_ < kLeastNoise) return renyi;
  const double slack = delta * 1e-3, round_off = kRoundOff * count;
  if (delta < 2 * round_off) return renyi;
  const double most =
      3 + std::max(RenyiEpsilon(count, slack / 4), RenyiEpsilon(1, slack / (8 * count)));
  const double width = 2 * most * std::sqrt(count / 2 * std::log(12 / slack));
  error = std::max(error, width / static_cast<double>(kMostCells));
  double epsilon = 0;
  for (const bool removed : {true, false}) {
    epsilon = std::max(
        epsilon, ComposedEpsilon({q_, z_, removed}, count, delta - round_off, error, slack, most));
  }
  return std::min(epsilon, renyi);
}

double NoiseFor(double epsilon, double delta, double q, uint64_t rounds) {
  // What is enough by the quick bound is enough.
  const auto enough_quickly = [&](double z) {
    return Accountant(q, z).RenyiEpsilon(static_cast<double>(rounds), delta) <= epsilon;
  };
  const auto enough = [&](double z) {
    return enough_quickly(z) ||
           Accountant(q, z).EpsilonWithin(0.005 * epsilon, rounds, delta) <= epsilon;
  };
  double high = 0.5;
  while (!enough_quickly(high)) {
    high *= 2;
    if (high > 1e6) return kInfinity;
  }
  double low = high / 2;
  while (low > 1e-3 && enough(low)) {
    high = low;
    low /= 2;
  }
  while (high - low > 4e-3 * high) {
    const double middle = (low + high) / 2;
    (enough(middle) ? high : low) = middle;
  }
  const double digit = std::pow(10, std::floor(std::log10(high)) - 2);
  return std::ceil(high / digit) * digit;
}

}  // namespace macaw::algorithms
