#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/feedback.h"
#include "server/engine/client_states.h"
#include "server/engine/draw.h"
#include "server/engine/engine_options.h"
#include "server/engine/phase.h"
#include "server/engine/restored.h"
#include "virtual_time/clock.h"

namespace macaw::server {

// Draws round `round`, which begins at `clock`:
// without devices the cohort of the round, with devices who counts in virtual time (timed_round.h);
// where the log of a fleet is repeated whose rounds did not wait for each other, who counted then.
// A client that does not count is not trained.
absl::StatusOr<DrawnRound> DrawRound(const EngineOptions& options, const Draw& draw,
                                     const ClientStates& states, Round round,
                                     const virtual_time::ClockState& clock);

// The next round of a fleet whose rounds do not wait for each other: those that train on, and as
// many new clients as there are places free. `train_on`: seats by client; their models have aged.
absl::StatusOr<DrawnRound> DrawStep(const EngineOptions& options, const Draw& draw,
                                    const ClientStates& states, Round round,
                                    std::vector<Seat> train_on);
// The seats of clients that trained before this server opened its first round, `round`.
absl::StatusOr<std::vector<Seat>> TrainOnAgain(const EngineOptions& options, const Draw& draw,
                                               const ClientStates& states, Round round,
                                               const std::vector<Restored::TrainsOn>& before);
// The same round as an earlier server had opened it.
absl::StatusOr<DrawnRound> DrawStepAgain(const EngineOptions& options, const Draw& draw,
                                         const ClientStates& states, Round round,
                                         const Restored::PhaseStory& before);

// What the round tells of the clients that it asked, by client. `records`: of those that counted.
std::vector<scheduler::ClientFact> FactsOf(const std::vector<AskedClient>& asked,
                                           const std::vector<fleet::ClientRecord>& records,
                                           const std::vector<uint32_t>& rows);

}  // namespace macaw::server
