#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/safetensors.h"

namespace macaw::cli {

using Tensors = std::map<std::string, TensorRef>;

// How the values of one name differ between two models.
struct TensorDifference {
  std::string name;
  std::string dtype;  // of the first model; of both where they agree
  // Why the values are not compared: the tensor is in one model only, or has another shape. "":
  // they are.
  std::string why;
  uint64_t values = 0;
  uint64_t differing = 0;  // values with other bits, or that are not equal where the dtypes differ
  uint64_t beyond = 0;     // values further apart than the tolerance
  double largest = 0;      // |difference|, over values that are finite in both
  // The largest number of floating-point numbers between two values, where both are floats: of the
  // dtype, or of the narrower of two. Nothing for whole numbers.
  std::optional<uint64_t> ulps;
  uint64_t not_finite = 0;  // values that are NaN or infinite in one model and not the same there

  bool differs() const { return differing > 0 || !why.empty(); }
  bool is_beyond() const { return beyond > 0 || !why.empty(); }
};

// Whether two numbers agree within a tolerance: |a − b| ≤ tolerance · max(1, |a|, |b|). NaN agrees
// with NaN, and an infinity with itself.
bool Agree(double a, double b, double tolerance);

// Compares tensors of the same name, in the order of their names. F64, F32, F16, BF16, whole
// numbers and BOOL are compared as numbers; of other dtypes the bytes.
std::vector<TensorDifference> CompareTensors(const Tensors& a, const Tensors& b, double tolerance);

}  // namespace macaw::cli
