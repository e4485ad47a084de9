#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "models/spec.h"
#include "plan/task.h"
#include "training/api/stage.h"

namespace macaw::training {

// The points at which a stage's hook asks for representations (Stage::references), as tensors. They
// are copies that begin at a multiple of 64 bytes, because other alignments give other bits in MKL;
// their memory is kept for the next stage. `spec` must outlive it. One thread at a time.
class References {
 public:
  References(const models::ModelSpec& spec, at::Device device) : spec_(spec), device_(device) {}

  // The tensors of each reference, in the layout's order, valid until the next call. None where no
  // hook asks for representations. Refuses a stage whose hook cannot be carried out.
  absl::StatusOr<std::vector<std::vector<at::Tensor>>> Of(const Stage& stage,
                                                          const std::vector<StageOutcome>& before,
                                                          TaskKind task);

 private:
  const models::ModelSpec& spec_;
  const at::Device device_;
  std::vector<FlatVector> copies_;
};

}  // namespace macaw::training
