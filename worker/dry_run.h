#pragma once

#include "absl/status/status.h"
#include "data/dataset.h"
#include "worker/phase.h"

namespace macaw::worker {

// Trains and evaluates two rows of the first client that has any, from a model of zeros, with the
// run's algorithm and trainer, and throws the result away. Finds out before any client is leased
// whether this configuration can train at all: a scripted module of other shapes, labels that the
// loss does not take, a hook that fails. kInvalidArgument with the library's own words; no other
// node would fare better. OK for a node whose clients have no training rows.
absl::Status TryOneBatch(const RunContext& context, const data::Dataset& dataset);

}  // namespace macaw::worker
