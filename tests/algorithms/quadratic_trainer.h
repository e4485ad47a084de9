#pragma once

#include <array>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "training/api/stage.h"

namespace macaw::training {

// The half of the trainers' hooks that needs no tensor library; this test program links no other
// trainer.
struct Hooks {
  // Rewrites g, the gradient at w; `gradient_at` gives the same batch's gradient anywhere.
  using GradientAt = std::function<std::vector<double>(ConstVectorView)>;
  std::function<void(ConstVectorView w, VectorView g, const GradientAt& gradient_at)> correct;
};

}  // namespace macaw::training

namespace macaw::algorithms {

// f(x) = ½(x−b)ᵀA(x−b) in two dimensions.
struct Quadratic {
  std::array<std::array<double, 2>, 2> a;
  std::array<double, 2> b;
};

// Carries out plans on one client's quadratic: every batch is the full one. Steps: `local.steps`,
// or epochs · examples where that is 0. Follows the contract's order: gradient, hook, correction,
// weight decay, momentum, update. The outcomes' vectors live until the next Run. One thread.
class QuadraticTrainer {
 public:
  QuadraticTrainer(LayoutPtr layout) : layout_(std::move(layout)) {}

  absl::StatusOr<std::vector<training::StageOutcome>> Run(const training::LocalPlan& plan,
                                                          const Quadratic& objective,
                                                          uint32_t examples);

 private:
  LayoutPtr layout_;
  std::vector<FlatVector> ends_;
};

// The layout of a model of two numbers.
LayoutPtr TwoNumbers(DType dtype);

}  // namespace macaw::algorithms
