// The functions that kernels compute with, beside libm's in a wider type.
#include "device/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"

namespace macaw::device {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance in units of the exact value's last place (of the least normal number's below that).
template <typename T, typename Exact>
double Ulps(T got, Exact exact) {
  const T rounded = static_cast<T>(exact);
  if (got == rounded) return 0;
  if (std::isnan(got) && std::isnan(rounded)) return 0;
  if (!std::isfinite(got) || !std::isfinite(rounded)) return kInfinity;
  int exponent = 0;
  std::frexp(exact, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const Exact unit = std::ldexp(Exact{1}, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<Exact>(got) - exact) / unit);
}

// The largest distance over random numbers of [low, high] and their neighbours at both ends.
template <typename T, typename F, typename G>
double Worst(T low, T high, F ours, G exact) {
  RandomStream stream({.seed = 5});
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const T x = static_cast<T>(low + (high - low) * stream.Uniform());
    worst = std::max(worst, Ulps(ours(x), exact(x)));
  }
  T from_low = low, from_high = high;
  for (int i = 0; i < 1000; ++i) {
    worst = std::max(worst, Ulps(ours(from_low), exact(from_low)));
    worst = std::max(worst, Ulps(ours(from_high), exact(from_high)));
    from_low = std::nextafter(from_low, high);
    from_high = std::nextafter(from_high, low);
  }
  return worst;
}

TEST(DeviceMath, ExponentialsOfFloats) {
  const auto ours = [](float x) { return Exp(x); };
  const auto exact = [](float x) { return std::exp(static_cast<double>(x)); };
  EXPECT_LE(Worst<float>(-87, 88.72f, ours, exact), 2);
  EXPECT_LE(Worst<float>(-1, 1, ours, exact), 2);
  EXPECT_LE(Worst<float>(-104.5f, -87, ours, exact), 2);  // denormal results
  EXPECT_LE(Worst<float>(88.7f, 88.8f, ours, exact), 2);  // infinity begins
  EXPECT_EQ(Exp(0.0f), 1);
  EXPECT_EQ(Exp(-0.0f), 1);
  EXPECT_EQ(Exp(1e-45f), 1);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_EQ(Exp(1e30f), kInf);
  EXPECT_EQ(Exp(-1e30f), 0);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(DeviceMath, ExponentialsOfDoubles) {
  const auto ours = [](double x) { return Exp(x); };
  const auto exact = [](double x) { return std::exp(static_cast<long double>(x)); };
  EXPECT_LE(Worst<double>(-708, 709.78, ours, exact), 2);
  EXPECT_LE(Worst<double>(-1, 1, ours, exact), 2);
  EXPECT_LE(Worst<double>(-745.5, -708, ours, exact), 2);
  EXPECT_LE(Worst<double>(709.7, 709.8, ours, exact), 2);
  EXPECT_EQ(Exp(0.0), 1);
  EXPECT_EQ(Exp(5e-324), 1);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(1e300), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
}

TEST(DeviceMath, Logarithms) {
  const auto ours = [](double x) { return Log(x); };
  const auto exact = [](double x) { return std::log(static_cast<long double>(x)); };
  EXPECT_LE(Worst<double>(0.5, 2, ours, exact), 2);
  EXPECT_LE(Worst<double>(1, 1e4, ours, exact), 2);
  EXPECT_LE(Worst<double>(1e-300, 1e300, ours, exact), 2);
  EXPECT_LE(Worst<double>(5e-324, 1e-307, ours, exact), 2);  // denormal arguments
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0.0), -kInfinity);
  EXPECT_EQ(Log(-0.0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_TRUE(std::isnan(Log(std::nan(""))));
  const auto near_one = [](double x) { return std::log1p(static_cast<long double>(x)); };
  EXPECT_LE(Worst<double>(
                0, 1, [](double x) { return Log1p(x); }, near_one),
            4);
  EXPECT_LE(Worst<double>(
                0, 1e-12, [](double x) { return Log1p(x); }, near_one),
            4);
  EXPECT_TRUE(std::isnan(Log1p(std::nan(""))));
}

TEST(DeviceMath, ErrorFunction) {
  const auto ours = [](float x) { return Erf(x); };
  const auto exact = [](float x) { return std::erf(static_cast<double>(x)); };
  EXPECT_LE(Worst<float>(-1, 1, ours, exact), 4);
  EXPECT_LE(Worst<float>(-5, 5, ours, exact), 4);
  EXPECT_LE(Worst<float>(0, 1e-37f, ours, exact), 4);
  EXPECT_EQ(Erf(0.0f), 0);
  EXPECT_TRUE(std::signbit(Erf(-0.0f)));
  EXPECT_EQ(Erf(kInf), 1);
  EXPECT_EQ(Erf(-kInf), -1);
  EXPECT_TRUE(std::isnan(Erf(kNan)));
}

TEST(DeviceMath, TanhAndSigmoid) {
  const auto tanh = [](float x) { return std::tanh(static_cast<double>(x)); };
  EXPECT_LE(Worst<float>(
                -12, 12, [](float x) { return Tanh(x); }, tanh),
            3);
  EXPECT_LE(Worst<float>(
                -0.7f, 0.7f, [](float x) { return Tanh(x); }, tanh),
            3);
  EXPECT_LE(Worst<float>(
                0, 1e-37f, [](float x) { return Tanh(x); }, tanh),
            3);
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
  EXPECT_EQ(Tanh(0.0f), 0);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
  const auto sigmoid = [](float x) { return 1 / (1 + std::exp(-static_cast<double>(x))); };
  EXPECT_LE(Worst<float>(
                -20, 20, [](float x) { return Sigmoid(x); }, sigmoid),
            4);
  EXPECT_LE(Worst<float>(
                -104, -80, [](float x) { return Sigmoid(x); }, sigmoid),
            4);
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInf), 1);
  EXPECT_EQ(Sigmoid(-kInf), 0);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(DeviceMath, RoundsOnceWhereItSays) {
  // The product alone would be rounded to 1.
  const float almost = 1.0f + std::ldexp(1.0f, -23), other = 1.0f - std::ldexp(1.0f, -23);
  EXPECT_EQ(Fma(almost, other, -1.0f), -std::ldexp(1.0f, -46));
  EXPECT_EQ(Fma(1e200, 1e200, -kInfinity), -kInfinity);
  EXPECT_EQ(Sqrt(2.0f), std::sqrt(2.0f));
  EXPECT_EQ(Sqrt(2.0), std::sqrt(2.0));
  EXPECT_TRUE(std::isnan(Sqrt(-1.0)));
}

}  // namespace
}  // namespace macaw::device
