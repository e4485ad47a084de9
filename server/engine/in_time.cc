#include "server/engine/in_time.h"

#include <algorithm>
#include <utility>

#include "plan/local_steps.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"
#include "virtual_time/closing.h"

namespace macaw::server {

SeatsInTime InTime(const RunPlan& run, const virtual_time::Devices& devices,
                   const virtual_time::ClockState& clock, Round round, std::vector<Seat> seats) {
  const LocalConfig local = training::RoundLocal(run, round);
  std::vector<double> seconds;
  seconds.reserve(seats.size());
  for (const Seat& seat : seats) {
    const scheduler::CohortEntry& entry = seat.entry;
    const LocalConfig work = training::WorkOf(run.cohort, local, round, entry.client, entry.load);
    const auto passed = static_cast<double>(RowsPassed(work, entry.load));
    seconds.push_back(devices.TurnOf(round, entry.client, passed, clock.traffic).whole());
  }
  const DevicesConfig& config = run.devices;
  virtual_time::ClosingRules rules{.deadline = config.deadline,
                                   .needed = NeededOf(config.quorum, seats.size()),
                                   .drops_below = config.drops_below};
  if (run.cohort.over_selection > 1) rules.keep = run.cohort.size;
  if (config.enough > 0)
    rules.keep = rules.keep > 0 ? std::min(rules.keep, config.enough) : config.enough;
  const virtual_time::Closing closing = virtual_time::CloseRound(seconds, rules);
  SeatsInTime result{.time = {.end = clock,
                              .seconds = closing.seconds,
                              .late = closing.late,
                              .not_needed = closing.not_needed}};
  result.time.end.now += closing.seconds;
  result.seats.reserve(closing.kept.size());
  for (const uint32_t place : closing.kept) result.seats.push_back(std::move(seats[place]));
  return result;
}

}  // namespace macaw::server
