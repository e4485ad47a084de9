#pragma once

#include "absl/status/status.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// For Description::check of rules whose hooks compute steps of their own beside the trainer's.

// Refuses local.optimizer other than SGD, and momentum, which would go on from one such step to
// the next; and a clip.
absl::Status NeedsOwnSteps(const Setup& setup);
// Refuses local.clip_norm: it clips the gradient that the hook is given, and not those for which
// the hook asks.
absl::Status NeedsNoClip(const Setup& setup);

}  // namespace macaw::algorithms
