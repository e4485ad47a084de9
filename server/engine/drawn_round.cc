#include "server/engine/drawn_round.h"

#include <utility>

#include "core/status.h"
#include "server/engine/timed_round.h"

namespace macaw::server {

absl::StatusOr<DrawnRound> DrawRound(const EngineOptions& options, const Draw& draw,
                                     const ClientStates& states, Round round,
                                     const virtual_time::ClockState& clock) {
  const RunPlan& run = options.run;
  if (options.devices == nullptr) {
    MACAW_ASSIGN_OR_RETURN(std::vector<Seat> seats, draw.Seats({round, clock.now}, states));
    return DrawnRound{.seats = std::move(seats)};
  }
  TimedRound timed = TimeRound(run, *options.devices, draw.sampler(), round, clock);
  ClientWork work(run);
  DrawnRound drawn{.time = std::move(timed.time)};
  drawn.seats.reserve(timed.counted.size());
  for (const Arrival& one : timed.counted) {
    MACAW_ASSIGN_OR_RETURN(Seat seat,
                           draw.SeatOf(one.entry, work.From(one.base, one.entry), states));
    seat.staleness = round.value - 1 - one.base.value;
    drawn.seats.push_back(std::move(seat));
  }
  return drawn;
}

}  // namespace macaw::server
