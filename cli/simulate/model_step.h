#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/config/config.h"
#include "core/vector.h"
#include "data/dataset.h"
#include "models/spec.h"

namespace macaw::cli {

// `macaw simulate --model-step FILE`: what the run's back end makes of the first model, so that a
// caller can compare it with the model's own code. Takes two small batches of a client's training
// rows, and writes a safetensors file:
//   features.0, features.1    the batches as the model gets them (normalised; tokens as int32)
//   labels.0, labels.1        a class, or a target, per row
//   loss                      of each row of the first batch, in evaluation mode
//   gradient/NAME             of the mean loss of the first batch, without dropout; batch norm uses
//                             the batch's statistics
//   first/NAME, second/NAME   the model after a step of plain SGD on each batch in turn, with the
//                             learning rate `lr` of the metadata
// Its metadata: "task", "dtype", "backend", "lr"; "random" = "1": layers drop at random, so first
// and second are draws; "frozen_statistics" = "1": batch norm always uses its running statistics
// (model.buffers = "server"); "skipped": a reason why there is nothing to compare, and then no
// tensors.
absl::Status WriteModelStep(const Config& config, models::ModelSpec spec, const FlatVector& start,
                            const data::Dataset& dataset, const std::string& out);

}  // namespace macaw::cli
