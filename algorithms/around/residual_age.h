#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/algorithm.h"
#include "plan/update.h"

namespace macaw::algorithms {

// update.residual_decay, for the decorators whose clients keep a residual e_i of a channel. With
// ρ below 1 a client takes ρ^a·e_i in place of e_i, where a is the number of rounds between this
// one and the one in which e_i was counted last: 0 for a client that comes in every round. It keeps
// that round beside e_i, of each channel, since phases of one round may send different channels.
// With ρ = 1 no round is kept. All threads.

// Refuses a decay where clients keep no residual.
absl::Status CheckDecay(const UpdateConfig& update, bool residual);

// The client's state for a channel: "update_round_delta", a number.
NamedLayout ResidualRoundOf(absl::string_view channel);

// ρ^a; 1 where ρ is. In a later phase of the round in which e_i was counted it is 1.
double PartThatStays(double decay, const ClientContext& context, absl::string_view channel);

// Adds this round to the client's next state.
void KeepRound(const ClientContext& context, absl::string_view channel, ClientResult& result,
               Workspace& workspace);

}  // namespace macaw::algorithms
