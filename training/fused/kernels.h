#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "training/fused/isa.h"
#include "training/local_sgd.h"
#include "training/objective.h"

namespace macaw::training::fused {

// What a softmax cross-entropy is told: see Objective, whose numbers it gives.
struct SoftmaxRule {
  size_t classes = 0;
  std::span<const double> weights;  // per class; empty: 1
  double smoothing = 0;
};

// The loops beside the blocks, compiled for one instruction set. Buffers start on 64 bytes and rows
// lie RoundUp(width) floats apart, unless said otherwise.
struct Kernels {
  // Objective::Rate for classes: adds the sums of n rows of `logits` to `sums` and writes the
  // gradient, with zeros behind the classes. False, and nothing added, where a logit is not finite:
  // let Objective say what that means. Exponentials are single precision, their sums and losses
  // double.
  bool (*softmax)(const SoftmaxRule& rule, const Mean& mean, size_t n, const float* logits,
                  const int64_t* labels, float* gradient, std::span<double> sums);

  // training::SgdStep on one piece, with its bits, except that the gradient stays as it is: the
  // next backward pass overwrites it. The piece begins and ends on 64 bytes.
  void (*sgd)(const SgdRule& rule, double scale, size_t begin, size_t end,
              const SgdVectors<float>& vectors);

  // Copies n rows of `width` floats, from any addresses.
  void (*copy_rows)(const std::byte* const* rows, size_t n, size_t width, float* to);

  void (*add)(const float* more, size_t count, float* sum);  // count: a multiple of 16
};

const Kernels& KernelsOf(Isa isa);

}  // namespace macaw::training::fused
