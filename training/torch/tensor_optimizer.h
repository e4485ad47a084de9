#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plan/local.h"
#include "training/local_sgd.h"
#include "training/tensor_steps.h"

namespace macaw::training {

// The flat vectors of a step on a device. `anchor` is undefined if the correction's μ is 0, `v` if
// the correction has none.
struct StepTensors {
  at::Tensor weights;
  at::Tensor gradient;  // zeroed by the step
  at::Tensor anchor;
  at::Tensor v;
};

// LocalOptimizer (training/local_optimizer.h) as operations of LibTorch's, for vectors that are on
// a device: the same step, in the same order, with the device's bits. No call waits for the device.
// One thread at a time.
class TensorOptimizer {
 public:
  // Begins a stage with state zero. Requires a checked `local` (LocalOptimizer::Check). `like`: a
  // vector of the steps.
  void Start(const LocalConfig& local, double mu, const at::Tensor& like);
  // `clipped`: the gradient has been clipped already.
  void StepEach(const std::vector<StepPieces>& moving, const StepTensors& vectors, bool clipped);
  // Multiplies the gradient by the factor of the norm clip.
  static void Clip(double clip_norm, const Pieces& pieces, const at::Tensor& gradient);
  double a_norm1() const;  // as LocalOptimizer::a_norm1

 private:
  void StepPiece(uint64_t step, const StepTensors& piece, const at::Tensor& first,
                 const at::Tensor& second);

  LocalConfig local_;
  double mu_ = 0;
  bool adam_ = false;
  StepNorm norm_{SgdRule{}};
  at::Tensor first_, second_;  // momentum, or Adam's moments
};

}  // namespace macaw::training
