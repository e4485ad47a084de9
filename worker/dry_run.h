#pragma once

#include "absl/status/status.h"
#include "data/dataset.h"
#include "worker/phase.h"

namespace macaw::worker {

// Finds out whether this configuration can train at all, before any client is leased. Trains and
// evaluates two rows of the first client that has any, on a model of zeros, with the run's
// algorithm and trainer, and discards the result. Finds a scripted module of other shapes or for
// so many rows alone, labels that the loss does not accept, or a hook that fails. kInvalidArgument
// with the message of the library: every other node would fail in the same way. OK for a node whose
// clients have no training rows.
absl::Status TryOneBatch(const RunContext& context, const data::Dataset& dataset);

}  // namespace macaw::worker
