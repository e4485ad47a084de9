#pragma once

#include "algorithms/api/registry.h"

namespace macaw::algorithms::sketches {

// Test-only drafts of three algorithms that stretch the contract in different directions: they show
// that a new rule is a new file and no change to an interface. Not registered, not for use.
Description Ditto();  // two train stages, a personal model as client state
Description
Scaffold();  // control variates: client state, a second channel with a fixed divisor, v = c − c_i
Description Mime();  // two phases: full gradients, then training with a hook

}  // namespace macaw::algorithms::sketches
