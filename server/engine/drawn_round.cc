#include "server/engine/drawn_round.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/status.h"
#include "plan/local_steps.h"
#include "server/engine/arrivals.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"
#include "virtual_time/closing.h"

namespace macaw::server {
namespace {

using virtual_time::ClockState;

// What a client does that begins with the work of round `work`.
LocalConfig TurnOf(const RunPlan& run, const LocalConfig& local, Round work,
                   const scheduler::CohortEntry& entry) {
  return training::WorkOf(run.cohort, local, work, entry.client, entry.load);
}

DrawnRound InTime(const EngineOptions& options, Round round, std::vector<Seat> seats,
                  const ClockState& clock) {
  const RunPlan& run = options.run;
  const LocalConfig local = training::RoundLocal(run, round);
  std::vector<double> seconds;
  seconds.reserve(seats.size());
  for (const Seat& seat : seats) {
    const LocalConfig work = TurnOf(run, local, round, seat.entry);
    const auto passed = static_cast<double>(RowsPassed(work, seat.entry.load));
    seconds.push_back(
        options.devices->TurnOf(round, seat.entry.client, passed, clock.traffic).whole());
  }
  const DevicesConfig& config = run.devices;
  virtual_time::ClosingRules rules{.deadline = config.deadline,
                                   .needed = NeededOf(config.quorum, seats.size()),
                                   .drops_below = config.drops_below};
  if (run.cohort.over_selection > 1) rules.keep = run.cohort.size;
  if (config.enough > 0)
    rules.keep = rules.keep > 0 ? std::min(rules.keep, config.enough) : config.enough;
  const virtual_time::Closing closing = virtual_time::CloseRound(seconds, rules);
  DrawnRound drawn{.time = virtual_time::RoundTime{.end = clock,
                                                   .seconds = closing.seconds,
                                                   .late = closing.late,
                                                   .not_needed = closing.not_needed}};
  drawn.time->end.now += closing.seconds;
  drawn.seats.reserve(closing.kept.size());
  for (const uint32_t place : closing.kept) drawn.seats.push_back(std::move(seats[place]));
  return drawn;
}

absl::StatusOr<DrawnRound> NextArrivals(const EngineOptions& options, const Draw& draw,
                                        const ClientStates& states, Round round,
                                        const ClockState& clock) {
  const RunPlan& run = options.run;
  // A client that begins from the model after round b does the work of round b + 1.
  const auto work_of = [&run](const scheduler::CohortEntry& entry, Round base) {
    const Round work(base.value + 1);
    return TurnOf(run, training::RoundLocal(run, work), work, entry);
  };
  const auto passed = [&](const scheduler::CohortEntry& entry, Round base) {
    return static_cast<double>(RowsPassed(work_of(entry, base), entry.load));
  };
  Arrived arrived = ArrivalsOf(run, *options.devices, draw.sampler(), passed, round, clock);
  std::set<Round> bases;
  for (const ClockState::Training& one : arrived.clock.training) {
    const uint32_t most = run.asynchronous.max_staleness;
    if (most == 0 || round.value - one.base.value <= most) bases.insert(one.base);
  }
  DrawnRound drawn{.time = virtual_time::RoundTime{.end = std::move(arrived.clock),
                                                   .seconds = arrived.seconds,
                                                   .late = arrived.too_stale,
                                                   .asynchronous = true,
                                                   .bases = {bases.begin(), bases.end()}}};
  drawn.seats.reserve(arrived.arrivals.size());
  for (const Arrival& arrival : arrived.arrivals) {
    MACAW_ASSIGN_OR_RETURN(
        Seat seat, draw.SeatOf(arrival.entry, work_of(arrival.entry, arrival.base), states));
    seat.staleness = round.value - 1 - arrival.base.value;
    drawn.seats.push_back(std::move(seat));
  }
  return drawn;
}

}  // namespace

absl::StatusOr<DrawnRound> DrawRound(const EngineOptions& options, const Draw& draw,
                                     const ClientStates& states, Round round,
                                     const ClockState& clock) {
  if (options.run.asynchronous.on()) return NextArrivals(options, draw, states, round, clock);
  MACAW_ASSIGN_OR_RETURN(std::vector<Seat> seats, draw.Seats({round, clock.now}, states));
  if (options.devices == nullptr) return DrawnRound{.seats = std::move(seats)};
  ClockState begins = clock;
  // Of a table of presence: the round begins when somebody is there.
  for (int pauses = 0; seats.empty() && options.presence != nullptr && pauses < kMostPauses;
       ++pauses) {
    begins.now += kNobodyPause;
    MACAW_ASSIGN_OR_RETURN(seats, draw.Seats({round, begins.now}, states));
  }
  DrawnRound drawn = InTime(options, round, std::move(seats), begins);
  drawn.time->seconds += begins.now - clock.now;
  return drawn;
}

}  // namespace macaw::server
