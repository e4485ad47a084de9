#include "aggregation/fold_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "aggregation/fold-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "aggregation/fold_kernels.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::aggregation {
namespace HWY_NAMESPACE {

uint32_t LargestF32(const float* values, size_t count) {
  int32_t largest = 0;  // signed, because SSE2 can compare only signed integers
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & INT32_MAX);
  }
  return static_cast<uint32_t>(largest);
}

uint64_t LargestF64(const double* values, size_t count) {
  int64_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int64_t>(values[i]) & INT64_MAX);
  }
  return static_cast<uint64_t>(largest);
}

size_t CountAboveF32(const float* values, float least, size_t count) {
  uint32_t above = 0;  // of less than 2^32 values
  for (size_t i = 0; i < count; ++i) above += std::fabs(values[i]) > least ? 1 : 0;
  return above;
}

// Whether the sums have a value already.
enum class Into { kSum, kUnset };

template <Into into>
HWY_INLINE void Put(int64_t integer, int64_t& sum) {
  sum = into == Into::kSum ? sum + integer : integer;
}

template <Into into>
void FoldF32(const float* __restrict values, double scale, int64_t* __restrict sums, size_t count) {
  for (size_t i = 0; i < count; ++i) Put<into>(Rounded(values[i], scale), sums[i]);
}

// The upper half of a double's bits (Veltkamp's splitting), so that products of halves are exact.
HWY_INLINE double UpperHalf(double x) {
  const double c = 134217729.0 * x;  // 2^27 + 1
  return c - (c - x);
}

template <Into into>
HWY_INLINE void FoldLimbs(const double* __restrict values, double scale, double step,
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

template <Into into>
void FoldF64(const double* values, double scale, double step, int64_t* sums, size_t count) {
  FoldLimbs<into>(values, scale, step, sums, sums + count, sums + 2 * count, count);
}

template <Into into, typename T>
void MaxOf(const T* __restrict values, int64_t* __restrict sums, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t key = KeyOf(double{values[i]});
    sums[i] = into == Into::kSum ? std::max(sums[i], key) : key;
  }
}

void MergeAdd(const int64_t* __restrict from, int64_t* __restrict into, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

void MergeMax(const int64_t* __restrict from, int64_t* __restrict into, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] = std::max(into[i], from[i]);
}

FoldKernels::Span SpanOf(const int64_t* sums, size_t count) {
  if (count == 0) return {};
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<int64_t> tag;
  const size_t lanes = hn::Lanes(tag);
  int64_t low = sums[0], high = sums[0];
  size_t i = 0;
  if (count >= lanes) {
    auto lows = hn::LoadU(tag, sums), highs = lows;
    for (; i + lanes <= count; i += lanes) {
      const auto some = hn::LoadU(tag, sums + i);
      lows = hn::Min(lows, some);
      highs = hn::Max(highs, some);
    }
    low = hn::GetLane(hn::MinOfLanes(tag, lows));
    high = hn::GetLane(hn::MaxOfLanes(tag, highs));
  }
  for (; i < count; ++i) {
    low = std::min(low, sums[i]);
    high = std::max(high, sums[i]);
  }
  return {low, high};
}

void DivideF32(const int64_t* __restrict sums, double unit, double divisor, float* __restrict out,
               size_t count) {
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<double>(sums[i]) * unit / divisor);
}

const FoldKernels& TheKernels() {
  static constexpr FoldKernels kKernels = {.largest_f32 = LargestF32,
                                           .largest_f64 = LargestF64,
                                           .count_above_f32 = CountAboveF32,
                                           .add_f32 = FoldF32<Into::kSum>,
                                           .set_f32 = FoldF32<Into::kUnset>,
                                           .add_f64 = FoldF64<Into::kSum>,
                                           .set_f64 = FoldF64<Into::kUnset>,
                                           .max_f32 = MaxOf<Into::kSum, float>,
                                           .max_f64 = MaxOf<Into::kSum, double>,
                                           .key_f32 = MaxOf<Into::kUnset, float>,
                                           .key_f64 = MaxOf<Into::kUnset, double>,
                                           .merge_add = MergeAdd,
                                           .merge_max = MergeMax,
                                           .span = SpanOf,
                                           .divide_f32 = DivideF32};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::aggregation
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::aggregation {

const FoldKernels& KernelsOf(Isa isa) { MACAW_FOR_ISA(isa, TheKernels); }

const FoldKernels& BestKernels() {
  static const FoldKernels& best = KernelsOf(BestIsa());
  return best;
}

int64_t OrderedKey(double value) { return KeyOf(value); }

double FromOrderedKey(int64_t key) {
  return std::bit_cast<double>(key ^ ((key >> 63) & INT64_MAX));
}

}  // namespace macaw::aggregation
#endif  // HWY_ONCE
