#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace macaw::aggregation {

// The loops over elements, which are bandwidth-bound and therefore compiled once per instruction
// set. All of them give the same bits on every set: no fused multiply-add, no reassociation of
// anything but integers.
//
// Rounding to an integer, half to even, is an addition: in (x + 1.5·2^52) the last bit of the
// double is worth 1, so for |x| < 2^51 the sum's bit pattern less the constant's is the rounded
// integer, and both steps vectorise.
struct FoldKernels {
  // Smallest and largest of some integers; both 0 where there are none.
  struct Span {
    int64_t low = 0;
    int64_t high = 0;
  };

  const char* instruction_set;

  // Bit pattern of the largest |v|: NaN and infinities come out above every finite number.
  uint32_t (*largest_f32)(const float* values, size_t count);
  uint64_t (*largest_f64)(const double* values, size_t count);

  // sums[i] += round(values[i] · scale); scale = m·w·2^bits.
  void (*add_f32)(const float* values, double scale, int64_t* sums, size_t count);

  // The product values[i] · scale as an exact pair (p, e) (Dekker 1971), on three limbs of `count`
  // integers each: limb 0 takes round(p), limb 1 the remainder of p and e times `step` =
  // 2^limb_bits, limb 2 what is left of both times `step` again, rounded. Only that last rounding
  // loses anything.
  void (*add_f64)(const double* values, double scale, double step, int64_t* sums, size_t count);

  // sums[i] = max(sums[i], OrderedKey(values[i])).
  void (*max_f32)(const float* values, int64_t* sums, size_t count);
  void (*max_f64)(const double* values, int64_t* sums, size_t count);

  // Integer addition and maximum of two sums.
  void (*merge_add)(const int64_t* from, int64_t* into, size_t count);
  void (*merge_max)(const int64_t* from, int64_t* into, size_t count);

  Span (*span)(const int64_t* sums, size_t count);
};

// The widest set that this machine can run.
const FoldKernels& BestKernels();
// Every set that it can run, the plain one first: for tests.
std::span<const FoldKernels> AvailableKernels();

// An integer that orders doubles as numbers, with −0 below +0, so that a maximum does not depend on
// the order.
int64_t OrderedKey(double value);
double FromOrderedKey(int64_t key);
inline constexpr int64_t kNoKey = INT64_MIN;  // below every key of a finite number

}  // namespace macaw::aggregation
