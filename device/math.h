#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "device/kernel.h"

// What kernels compute with beside + − · /: the same bits on host and device. Square root and fused
// multiply-add are correctly rounded everywhere; the others are ours, within the stated distance of
// the exact value. Not-a-numbers, infinities, zeros and denormal results are libm's.
namespace macaw::device {

MACAW_KERNEL float Fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

MACAW_KERNEL double Fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

MACAW_KERNEL float Sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

MACAW_KERNEL double Sqrt(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

namespace internal {

template <typename To, typename From>
MACAW_KERNEL To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// 2^n, for n of normal numbers.
MACAW_KERNEL float PowerOfTwo(int32_t n, float) {
  return BitsAs<float>(static_cast<uint32_t>(n + 127) << 23);
}
MACAW_KERNEL double PowerOfTwo(int32_t n, double) {
  return BitsAs<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// y · 2^n; in two steps, so that the result may be denormal or infinite.
template <typename T>
MACAW_KERNEL T Scale(T y, int32_t n) {
  const int32_t half = n / 2;
  return y * PowerOfTwo(half, T{}) * PowerOfTwo(n - half, T{});
}

MACAW_KERNEL float Infinity(float) { return BitsAs<float>(uint32_t{0x7F800000}); }
MACAW_KERNEL double Infinity(double) { return BitsAs<double>(uint64_t{0x7FF0000000000000}); }

}  // namespace internal

// eˣ within 2 ulp. The polynomial is Cephes' expf (Moshier).
MACAW_KERNEL float Exp(float x) {
  if (!(x <= 88.75f)) return x > 88.75f ? internal::Infinity(x) : x + x;
  if (x < -104.0f) return 0.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: a sum with it is rounded to an integer
  const float n = (x * 1.44269504f + kRound) - kRound;
  const float r = Fma(n, 2.12194440e-4f, Fma(n, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = Fma(p, r, 1.3981999507e-3f);
  p = Fma(p, r, 8.3334519073e-3f);
  p = Fma(p, r, 4.1665795894e-2f);
  p = Fma(p, r, 1.6666665459e-1f);
  p = Fma(p, r, 5.0000001201e-1f);
  return internal::Scale(Fma(p, r * r, r) + 1.0f, static_cast<int32_t>(n));
}

// eˣ within 2 ulp. The rational function is FreeBSD's e_exp.c (Sun Microsystems 1993).
MACAW_KERNEL double Exp(double x) {
  if (!(x <= 709.79)) return x > 709.79 ? internal::Infinity(x) : x + x;
  if (x < -745.2) return 0.0;
  constexpr double kRound = 6755399441055744.0;  // 1.5 · 2^52
  const double n = (x * 1.44269504088896338700e+00 + kRound) - kRound;
  const double high = Fma(n, -6.93147180369123816490e-01, x);
  const double low = n * 1.90821492927058770002e-10;
  const double r = high - low, t = r * r;
  double p = 4.13813679705723846039e-08;
  p = Fma(p, t, -1.65339022054652515390e-06);
  p = Fma(p, t, 6.61375632143793436117e-05);
  p = Fma(p, t, -2.77777777770155933842e-03);
  p = Fma(p, t, 1.66666666666666019037e-01);
  const double c = r - t * p;
  const double y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
  return internal::Scale(y, static_cast<int32_t>(n));
}

// The natural logarithm within 2 ulp (FreeBSD's e_log.c).
MACAW_KERNEL double Log(double x) {
  if (!(x > 0)) return x == 0 ? -internal::Infinity(x) : (x - x) / (x - x);
  if (x == internal::Infinity(x)) return x;
  int32_t k = 0;
  if (x < 2.2250738585072014e-308) {  // denormal
    x *= 18014398509481984.0;         // 2^54
    k = -54;
  }
  uint64_t bits = internal::BitsAs<uint64_t>(x);
  // The exponent is chosen so that the rest lies between √½ and √2.
  const uint64_t above = bits - 0x3FE6A09E667F3BCD;
  k += static_cast<int32_t>(static_cast<int64_t>(above) >> 52);
  bits -= above & 0xFFF0000000000000;
  const double f = internal::BitsAs<double>(bits) - 1.0;
  const double s = f / (2.0 + f), z = s * s;
  double p = 1.479819860511658591e-01;
  p = Fma(p, z, 1.531383769920937332e-01);
  p = Fma(p, z, 1.818357216161805012e-01);
  p = Fma(p, z, 2.222219843214978396e-01);
  p = Fma(p, z, 2.857142874366239149e-01);
  p = Fma(p, z, 3.999999999940941908e-01);
  p = Fma(p, z, 6.666666666666735130e-01);
  const double half = 0.5 * f * f, n = k;
  const double tail = Fma(n, 1.90821492927058770002e-10, s * (half + z * p));
  return n * 6.93147180369123816490e-01 - ((half - tail) - f);
}

// log(1 + x) for x in [0, 1], within 4 ulp: what rounding 1 + x loses is put back (Kahan).
MACAW_KERNEL double Log1p(double x) {
  const double sum = 1.0 + x;
  return sum == 1.0 ? x : Log(sum) * (x / (sum - 1.0));
}

// Within 3 ulp. The polynomial is Cephes' tanhf.
MACAW_KERNEL float Tanh(float x) {
  const float size = x < 0 ? -x : x;
  if (size < 1e-4f) return x;  // x³/3 is below the last place
  if (size < 0.625f) {
    const float z = x * x;
    float p = -5.70498872745e-3f;
    p = Fma(p, z, 2.06390887954e-2f);
    p = Fma(p, z, -5.37397155531e-2f);
    p = Fma(p, z, 1.33314422036e-1f);
    p = Fma(p, z, -3.33332819422e-1f);
    return Fma(p * z, x, x);
  }
  if (!(size < 10.0f)) return size >= 10.0f ? (x < 0 ? -1.0f : 1.0f) : x + x;
  const float y = 1.0f - 2.0f / (Exp(2.0f * size) + 1.0f);
  return x < 0 ? -y : y;
}

// 1/(1 + e⁻ˣ), within 4 ulp.
MACAW_KERNEL float Sigmoid(float x) {
  const float e = Exp(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

// The error function 2/√π ∫₀ˣ e^(−t²) dt, within 4 ulp: an odd polynomial below 1, beyond it
// 1 − e^(−x²)·q(1/(1 + x/2)). Both polynomials are near-minimax fits.
MACAW_KERNEL float Erf(float x) {
  const float size = x < 0 ? -x : x;
  if (size < 1.0f) {
    const float z = x * x;
    float p = 7.8538576e-5f;
    p = Fma(p, z, -8.0101925e-4f);
    p = Fma(p, z, 5.1883276e-3f);
    p = Fma(p, z, -2.6853812e-2f);
    p = Fma(p, z, 1.12835851e-1f);
    p = Fma(p, z, -3.76126258e-1f);
    return Fma(p, z, 1.12837917f) * x;
  }
  if (!(size < 4.2f)) return size >= 4.2f ? (x < 0 ? -1.0f : 1.0f) : x + x;
  const float t = 1.0f / (1.0f + 0.5f * size);
  float q = 1.17676497e-1f;
  q = Fma(q, t, -4.65469003e-1f);
  q = Fma(q, t, 5.54919989e-1f);
  q = Fma(q, t, -9.6909095e-2f);
  q = Fma(q, t, 3.44599571e-1f);
  q = Fma(q, t, 2.60599106e-1f);
  q = Fma(q, t, 2.8476954e-1f);
  q = Fma(q, t, -1.44642113e-4f);
  const float y = 1.0f - Exp(-size * size) * q;
  return x < 0 ? -y : y;
}

}  // namespace macaw::device
