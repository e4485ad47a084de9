#include "aggregation/fold_kernels.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "aggregation/fold-inl.h"

// Compiles a function for one instruction set, whatever the rest of the program is compiled for.
// Sanitizer builds and other processors use the plain functions, which give the same results.
#if defined(__x86_64__) && !defined(MACAW_SANITIZED)
#define MACAW_FOLD_X86 1
#endif

#define MACAW_INLINE inline __attribute__((always_inline))

namespace macaw::aggregation {
namespace {

MACAW_INLINE uint32_t LargestF32(const float* values, size_t count) {
  int32_t largest = 0;  // signed, because SSE2 can compare only signed integers
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & INT32_MAX);
  }
  return static_cast<uint32_t>(largest);
}

MACAW_INLINE uint64_t LargestF64(const double* values, size_t count) {
  int64_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int64_t>(values[i]) & INT64_MAX);
  }
  return static_cast<uint64_t>(largest);
}

// Whether the sums have a value already.
enum class Into { kSum, kUnset };

template <Into into>
MACAW_INLINE void Put(int64_t integer, int64_t& sum) {
  sum = into == Into::kSum ? sum + integer : integer;
}

template <Into into>
MACAW_INLINE void FoldF32(const float* __restrict values, double scale, int64_t* __restrict sums,
                          size_t count) {
  for (size_t i = 0; i < count; ++i) Put<into>(Rounded(values[i], scale), sums[i]);
}

// The upper half of a double's bits (Veltkamp's splitting), so that products of halves are exact.
MACAW_INLINE double UpperHalf(double x) {
  const double c = 134217729.0 * x;  // 2^27 + 1
  return c - (c - x);
}

template <Into into>
MACAW_INLINE void FoldF64(const double* __restrict values, double scale, double step,
                          int64_t* __restrict first, int64_t* __restrict second,
                          int64_t* __restrict third, size_t count) {
  const double scale_upper = UpperHalf(scale);
  const double scale_lower = scale - scale_upper;
  for (size_t i = 0; i < count; ++i) {
    const double p = values[i] * scale;
    const double upper = UpperHalf(values[i]);
    const double lower = values[i] - upper;
    const double e = ((upper * scale_upper - p) + upper * scale_lower + lower * scale_upper) +
                     lower * scale_lower;

    const double p0 = p + kRounder;
    const double p_rest =
        (p - (p0 - kRounder)) * step;  // exact: the rounding error times a power of two
    const double p1 = p_rest + kRounder;
    const double p_last = (p_rest - (p1 - kRounder)) * step;
    const double e_rest = e * step;
    const double e1 = e_rest + kRounder;
    const double e_last = (e_rest - (e1 - kRounder)) * step;

    Put<into>(Integer(p0), first[i]);
    Put<into>(Integer(p1) + Integer(e1), second[i]);
    Put<into>(Integer(p_last + kRounder) + Integer(e_last + kRounder), third[i]);
  }
}

template <Into into, typename T>
MACAW_INLINE void MaxOf(const T* __restrict values, int64_t* __restrict sums, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t key = KeyOf(double{values[i]});
    sums[i] = into == Into::kSum ? std::max(sums[i], key) : key;
  }
}

MACAW_INLINE void MergeAdd(const int64_t* __restrict from, int64_t* __restrict into, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

MACAW_INLINE void MergeMax(const int64_t* __restrict from, int64_t* __restrict into, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] = std::max(into[i], from[i]);
}

MACAW_INLINE FoldKernels::Span SpanOf(const int64_t* sums, size_t count) {
  int64_t low = count == 0 ? 0 : sums[0];
  int64_t high = low;
  for (size_t i = 0; i < count; ++i) {
    low = std::min(low, sums[i]);
    high = std::max(high, sums[i]);
  }
  return {low, high};
}

MACAW_INLINE void DivideF32(const int64_t* __restrict sums, double unit, double divisor,
                            float* __restrict out, size_t count) {
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<double>(sums[i]) * unit / divisor);
}

// One table of functions per instruction set, each compiled with `attribute`.
#define MACAW_FOLD_TABLE(set, attribute)                                                        \
  namespace set {                                                                               \
  attribute uint32_t Largest32(const float* v, size_t n) { return LargestF32(v, n); }           \
  attribute uint64_t Largest64(const double* v, size_t n) { return LargestF64(v, n); }          \
  attribute void Add32(const float* v, double scale, int64_t* s, size_t n) {                    \
    FoldF32<Into::kSum>(v, scale, s, n);                                                        \
  }                                                                                             \
  attribute void Set32(const float* v, double scale, int64_t* s, size_t n) {                    \
    FoldF32<Into::kUnset>(v, scale, s, n);                                                      \
  }                                                                                             \
  attribute void Add64(const double* v, double scale, double step, int64_t* s, size_t n) {      \
    FoldF64<Into::kSum>(v, scale, step, s, s + n, s + 2 * n, n);                                \
  }                                                                                             \
  attribute void Set64(const double* v, double scale, double step, int64_t* s, size_t n) {      \
    FoldF64<Into::kUnset>(v, scale, step, s, s + n, s + 2 * n, n);                              \
  }                                                                                             \
  attribute void Max32(const float* v, int64_t* s, size_t n) { MaxOf<Into::kSum>(v, s, n); }    \
  attribute void Max64(const double* v, int64_t* s, size_t n) { MaxOf<Into::kSum>(v, s, n); }   \
  attribute void Key32(const float* v, int64_t* s, size_t n) { MaxOf<Into::kUnset>(v, s, n); }  \
  attribute void Key64(const double* v, int64_t* s, size_t n) { MaxOf<Into::kUnset>(v, s, n); } \
  attribute void Add(const int64_t* from, int64_t* into, size_t n) { MergeAdd(from, into, n); } \
  attribute void Max(const int64_t* from, int64_t* into, size_t n) { MergeMax(from, into, n); } \
  attribute FoldKernels::Span Ends(const int64_t* s, size_t n) { return SpanOf(s, n); }         \
  attribute void Divide32(const int64_t* s, double unit, double d, float* out, size_t n) {      \
    DivideF32(s, unit, d, out, n);                                                              \
  }                                                                                             \
  constexpr FoldKernels kKernels = {#set,  Largest32, Largest64, Add32, Set32,                  \
                                    Add64, Set64,     Max32,     Max64, Key32,                  \
                                    Key64, Add,       Max,       Ends,  Divide32};              \
  }

MACAW_FOLD_TABLE(plain, )
#ifdef MACAW_FOLD_X86
MACAW_FOLD_TABLE(avx2, __attribute__((target("avx2"))))
MACAW_FOLD_TABLE(avx512, __attribute__((target("avx512f,avx512dq"))))
#endif

std::vector<FoldKernels> Detect() {
  std::vector<FoldKernels> available = {plain::kKernels};
#ifdef MACAW_FOLD_X86
  if (__builtin_cpu_supports("avx2")) available.push_back(avx2::kKernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    available.push_back(avx512::kKernels);
  }
#endif
  return available;
}

}  // namespace

std::span<const FoldKernels> AvailableKernels() {
  static const std::vector<FoldKernels> available = Detect();
  return available;
}

const FoldKernels& BestKernels() { return AvailableKernels().back(); }

int64_t OrderedKey(double value) { return KeyOf(value); }

double FromOrderedKey(int64_t key) {
  return std::bit_cast<double>(key ^ ((key >> 63) & INT64_MAX));
}

}  // namespace macaw::aggregation
