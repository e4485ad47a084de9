#pragma once

#include "absl/status/status.h"
#include "algorithms/api/description.h"

namespace macaw::algorithms {

// Refuses a rule whose clients keep a state that may mirror what they send, for a decorator that
// changes what is sent. `change` says how, as a sentence begins: "Clipping takes a part of that
// away".
absl::Status CheckCountedState(const Description& rule, const Schema& schema,
                               absl::string_view change);

// Whether clients keep a state that mirrors what was counted of what they sent
// (Description::state_follows_sent).
bool HasStateThatFollows(const Description& rule, const Schema& schema);

}  // namespace macaw::algorithms
