#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "training/objective.h"

namespace macaw::training {

// The losses and metric sums of batches whose outputs are on a device (objective.h has the
// formulas), by LibTorch's operations. The sums stay there until they are taken, so that no step
// waits for the device. One thread at a time.
class TensorObjective {
 public:
  // Adds the batch's sums, the loss as mean.rows times its mean, and returns the batch's part of
  // the mean loss, a scalar in the graph of `outputs`. `outputs`: [rows, outputs] or [rows,
  // positions, outputs]; `labels`: a class for each row or position, or a number for each row.
  at::Tensor Rate(const Objective& objective, const at::Tensor& outputs, const at::Tensor& labels,
                  const Mean& mean);
  // Adds what has been collected to `sums`, and begins anew.
  void Take(std::span<double> sums);

 private:
  at::Tensor sums_;  // of double, on the device; undefined: none yet
};

}  // namespace macaw::training
