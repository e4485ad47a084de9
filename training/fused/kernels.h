#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "training/fused/isa.h"
#include "training/local_sgd.h"
#include "training/objective.h"

namespace macaw::training::fused {

// The parameters of softmax cross-entropy; the results are those of Objective.
struct SoftmaxRule {
  size_t classes = 0;
  std::span<const double> weights;  // per class; empty: 1
  double smoothing = 0;
};

// The loops besides the blocks, compiled for one instruction set. Unless said otherwise, buffers
// are 64-byte aligned and rows lie RoundUp(width) floats apart.
struct Kernels {
  // Objective::Rate for classes: adds the sums of n rows of `logits` to `sums` and writes the
  // gradient, with zeros behind the classes. If a logit is not finite, returns false and adds
  // nothing; Objective then decides what that means. Exponentials are in single precision, their
  // sums and the losses in double.
  bool (*softmax)(const SoftmaxRule& rule, const Mean& mean, size_t n, const float* logits,
                  const int64_t* labels, float* gradient, std::span<double> sums);

  // training::SgdStep on one piece, with the same bits, except that the gradient is not zeroed: the
  // next backward pass overwrites it. The piece begins and ends at multiples of 64 bytes.
  void (*sgd)(const SgdRule& rule, double scale, size_t begin, size_t end,
              const SgdVectors<float>& vectors);

  // Copies n rows of `width` floats. The addresses need not be aligned.
  void (*copy_rows)(const std::byte* const* rows, size_t n, size_t width, float* to);

  void (*add)(const float* more, size_t count, float* sum);  // count: a multiple of 16
};

const Kernels& KernelsOf(Isa isa);

}  // namespace macaw::training::fused
