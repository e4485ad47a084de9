#pragma once

#include "algorithms/robust/robust.h"

namespace macaw::algorithms {

// Weights of a rule that collects updates: α_k, the client's weight under cohort.weight, which it
// says on a channel of its own (kWeightChannel).

// The parameter weighted.
bool IsWeighted(const Setup& setup);

// Gives each update the weight that its client has reported. An update whose weight is not above 0
// is taken out.
void TakeWeights(const Updates& reported, Arrived& arrived);

// The rule with the parameter, the channel and a client that reports.
Description WithReportedWeights(Description rule);

}  // namespace macaw::algorithms
