#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"

namespace macaw::aggregation {

// The loops over elements. They are limited by memory bandwidth and compiled once per instruction
// set. All sets give the same bits: no fused multiply-add, and only integers are reordered.
//
// Rounding to an integer, half to even, is done by an addition: the last bit of x + 1.5·2^52 has
// the value 1, so for |x| < 2^51 the rounded integer is the sum's bit pattern minus the constant's.
// Both operations vectorise.
struct FoldKernels {
  // The smallest and largest of some integers; both 0 if there are none.
  struct Span {
    int64_t low = 0;
    int64_t high = 0;
  };

  // The bit pattern of the largest |v|. NaN and infinities compare above every finite number.
  uint32_t (*largest_f32)(const float* values, size_t count);
  uint64_t (*largest_f64)(const double* values, size_t count);

  // How many |v| are larger than `least`.
  size_t (*count_above_f32)(const float* values, float least, size_t count);

  // sums[i] += round(values[i] · scale); scale = m·w·2^bits. The set_ functions store where the
  // add_ functions add, for the first vector of a sum.
  void (*add_f32)(const float* values, double scale, int64_t* sums, size_t count);
  void (*set_f32)(const float* values, double scale, int64_t* sums, size_t count);

  // Splits the product values[i] · scale into an exact pair (p, e) (Dekker 1971) and adds it to
  // three limbs of `count` integers each. Limb 0 gets round(p). Limb 1 gets the remainder of p plus
  // e, times `step` = 2^limb_bits, rounded. Limb 2 gets what is then left, times `step` again,
  // rounded. Only this last rounding loses information.
  void (*add_f64)(const double* values, double scale, double step, int64_t* sums, size_t count);
  void (*set_f64)(const double* values, double scale, double step, int64_t* sums, size_t count);

  // sums[i] = max(sums[i], OrderedKey(values[i])), and sums[i] = OrderedKey(values[i]).
  void (*max_f32)(const float* values, int64_t* sums, size_t count);
  void (*max_f64)(const double* values, int64_t* sums, size_t count);
  void (*key_f32)(const float* values, int64_t* sums, size_t count);
  void (*key_f64)(const double* values, int64_t* sums, size_t count);

  // Integer addition and maximum of two sums.
  void (*merge_add)(const int64_t* from, int64_t* into, size_t count);
  void (*merge_max)(const int64_t* from, int64_t* into, size_t count);

  Span (*span)(const int64_t* sums, size_t count);

  // out[i] = sums[i] · unit ÷ divisor, rounded after each operation.
  void (*divide_f32)(const int64_t* sums, double unit, double divisor, float* out, size_t count);
};

// Those of one of SupportedIsas(), and of the best.
const FoldKernels& KernelsOf(Isa isa);
const FoldKernels& BestKernels();

// Maps doubles to integers in the same order, with −0 below +0, so that a maximum does not depend
// on the order of its operands.
int64_t OrderedKey(double value);
double FromOrderedKey(int64_t key);
inline constexpr int64_t kNoKey = INT64_MIN;  // below every key of a finite number

}  // namespace macaw::aggregation
