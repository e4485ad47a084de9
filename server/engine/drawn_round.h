#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/feedback.h"
#include "server/engine/client_states.h"
#include "server/engine/draw.h"
#include "server/engine/engine_options.h"
#include "server/engine/phase.h"
#include "virtual_time/clock.h"

namespace macaw::server {

// A client that a round asks, whether it counts or not.
struct AskedClient {
  ClientId client;
  std::optional<double> seconds = {};  // of its turn in virtual time
};

// Who trains in a round.
struct DrawnRound {
  std::vector<Seat> seats;                           // by client
  std::optional<virtual_time::RoundTime> time = {};  // of a run with virtual time
  std::vector<AskedClient> asked = {};               // by client; of a sampling that learns
};

// Draws round `round`, which begins at `clock`:
// without devices the cohort of the round, with devices who counts in virtual time (timed_round.h).
// A client that does not count is not trained.
absl::StatusOr<DrawnRound> DrawRound(const EngineOptions& options, const Draw& draw,
                                     const ClientStates& states, Round round,
                                     const virtual_time::ClockState& clock);

// What the round tells of the clients that it asked, by client. `records`: of those that counted.
std::vector<scheduler::ClientFact> FactsOf(const std::vector<AskedClient>& asked,
                                           const std::vector<fleet::ClientRecord>& records,
                                           const std::vector<uint32_t>& rows);

}  // namespace macaw::server
