#include "server/engine/drawn_round.h"

#include <algorithm>
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
    DrawnRound drawn{.seats = std::move(seats)};
    if (LearnsFromRounds(run.cohort)) {
      for (const Seat& seat : drawn.seats) drawn.asked.push_back({.client = seat.entry.client});
    }
    return drawn;
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
  if (LearnsFromRounds(run.cohort)) {
    for (const BegunTurn& turn : timed.begun)
      drawn.asked.push_back({.client = turn.client, .seconds = turn.time.whole()});
  }
  return drawn;
}

std::vector<scheduler::ClientFact> FactsOf(const std::vector<AskedClient>& asked,
                                           const std::vector<fleet::ClientRecord>& records,
                                           const std::vector<uint32_t>& rows) {
  std::vector<scheduler::ClientFact> facts;
  facts.reserve(asked.size());
  auto record = records.begin();
  for (const AskedClient& one : asked) {
    record = std::find_if(record, records.end(), [&](const fleet::ClientRecord& counted) {
      return counted.attempt.client >= one.client;
    });
    scheduler::ClientFact& fact = facts.emplace_back();
    fact = {.client = one.client, .rows = rows[one.client.value], .seconds = one.seconds};
    fact.left_out = record == records.end() || record->attempt.client != one.client;
    // The first two sums of every task are the examples and their losses (training/api/metrics.h).
    if (!fact.left_out && record->sums.size() > 1 && record->sums[0] > 0)
      fact.loss = record->sums[1] / record->sums[0];
  }
  return facts;
}

}  // namespace macaw::server
