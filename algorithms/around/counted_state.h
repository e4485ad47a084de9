#pragma once

#include "absl/status/status.h"
#include "algorithms/api/description.h"

namespace macaw::algorithms {

// Refuses a rule whose clients keep a state that may mirror what they send, for a decorator that
// changes what is sent. `change` says how, as a sentence begins: "Clipping takes a part of that
// away".
absl::Status CheckCountedState(const Description& rule, const Schema& schema,
                               absl::string_view change);

}  // namespace macaw::algorithms
