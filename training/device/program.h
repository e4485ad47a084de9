#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "models/spec.h"
#include "training/device/ops.h"

namespace macaw::training::ondevice {

// A model as what the kernel interprets. Immutable once compiled.
struct CompiledModel {
  // An error (kUnimplemented) says what is too large, or that the model is no list of layers.
  // `batch` is the run's local.batch_size, for which products are shaped; steps may have others.
  static absl::StatusOr<CompiledModel> Compile(const models::ModelSpec& spec, uint32_t batch);

  // The first operation with a tensor that is trained; the number of operations if there is none.
  // `trainable` is per tensor; null: all.
  uint32_t Lowest(const std::vector<bool>* trainable) const;

  std::vector<Op> ops;
  std::vector<Tap> taps;
  std::vector<Tensor> tensors;  // in the order of the layout
  Program program;  // its sizes; the addresses are not set, nor what depends on the data
  // Rows of a pass: kPassRows, or fewer where an example needs very much memory.
  uint32_t pass_rows = kPassRows;
  // Rows for which there can be memory in one pass.
  uint32_t batch_rows = 0;
  uint64_t row_work = 1;  // of a row, forward and back (work_estimate.h)
  bool has_dropout = false;
  // Every step needs its gradient whole, because an embedding adds to it here and there.
  bool keeps_gradients = false;
  // A step is one pass, because batch norm takes the moments of its batch.
  bool takes_whole_batches = false;
};

}  // namespace macaw::training::ondevice
