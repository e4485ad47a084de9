#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/vector.h"
#include "plan/local.h"
#include "training/local_sgd.h"
#include "training/tensor_steps.h"

namespace macaw::training {

// The vectors of a step besides the optimizer's own state; all have the same layout. `anchor` is
// not read if the correction's μ is 0; `v` is empty if the correction has none.
template <typename T>
struct StepVectors {
  std::span<T> weights;
  std::span<T> gradient;  // zeroed by the step
  std::span<const T> anchor;
  std::span<const T> v;
};

// The optimizer of a client's local steps (LocalConfig::optimizer) and its state: momentum, or
// Adam's two moments. Belongs to a slot, and each stage starts it from zero. Memory is allocated by
// the first stage that needs it. No LibTorch. One thread at a time.
class LocalOptimizer {
 public:
  explicit LocalOptimizer(LayoutPtr layout) : layout_(std::move(layout)) {}

  // Errors name the key of [local] that does not fit the optimizer.
  static absl::Status Check(const LocalConfig& local);

  // Begins a stage with state zero. `mu` is that of its affine correction. Requires a checked
  // `local`.
  void Start(const LocalConfig& local, double mu);
  // One step of elements that each say which step of theirs it is, from 1: norm clip over the
  // pieces (unless `clipped`: already done), correction, decay, moments, update. With
  // LocalConfig::clip = "corrected" the correction comes before the clip.
  template <typename T>
  void StepEach(const std::vector<StepPieces>& moving, const StepVectors<T>& vectors, bool clipped);

  // ‖a‖₁ over the steps so far (StepNorm). NaN for Adam and AdamW, whose displacement is not linear
  // in the gradients: a rule that divides by it must refuse them. If it does not, the contribution
  // is refused as not finite.
  double a_norm1() const;

 private:
  LayoutPtr layout_;
  LocalConfig local_;
  double mu_ = 0;
  bool adam_ = false;
  bool clips_corrected_ = false;
  StepNorm norm_{SgdRule{}};
  FlatVector first_;   // momentum, or Adam's first moment
  FlatVector second_;  // Adam's second moment
};

}  // namespace macaw::training
