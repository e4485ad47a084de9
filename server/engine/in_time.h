#pragma once

#include <vector>

#include "plan/run_plan.h"
#include "server/engine/phase.h"
#include "virtual_time/clock.h"
#include "virtual_time/devices.h"

namespace macaw::server {

// The clients of a round in virtual time.
struct SeatsInTime {
  std::vector<Seat> seats;  // those that count, by client
  virtual_time::RoundTime time;
};

// Which of the drawn clients count, and how long the round takes, by the devices' turns and by the
// rules of the plan: cohort.over_selection keeps the first cohort.size, and [round] closes as it
// does on a fleet. A client that does not count is not trained. `seats`: of all drawn clients.
SeatsInTime InTime(const RunPlan& run, const virtual_time::Devices& devices,
                   const virtual_time::ClockState& clock, Round round, std::vector<Seat> seats);

}  // namespace macaw::server
