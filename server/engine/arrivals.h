#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/ids.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "virtual_time/clock.h"
#include "virtual_time/devices.h"

namespace macaw::server {

// Who arrives when, in a run whose rounds do not wait for each other (plan/asynchronous.h).
//
// round.concurrency clients train at a time. Each began at some moment of the virtual clock, from
// the model of that moment, which is its base; its device says when it arrives. Round r is the
// server's r-th step: the next cohort.size arrivals. So a round's clients, their bases and their
// weights are known before anybody trains, and any worker gives the same bits.
//
//   τ = (r − 1) − base        how many steps the client's base is behind the model that is moved
//
// Clients begin in groups of round.refill, as soon as so many places are free; the last of the
// groups that fill the places at first may be smaller. Group g is drawn as a synchronous run draws
// round g, among the clients that neither train nor wait in the buffer. A group that could begin at
// the moment of a step begins after it, with the new model. So with cohort.size = round.refill =
// round.concurrency each group is a synchronous round. Where a table says who is there and too few
// are, the others begin when they come.
//
// The state of all this is in ClockState, and the calls are pure functions of it. One thread.
struct Arrival {
  scheduler::CohortEntry entry;
  Round base;  // the round after which the client began; 0: with the initial model
};

// A client's turn on its device.
struct BegunTurn {
  ClientId client;
  Round base;        // from whose model it trains
  double began = 0;  // on the virtual clock
  virtual_time::TurnTime time;
};

struct Arrived {
  std::vector<Arrival> arrivals;   // those that count, by client
  std::vector<BegunTurn> begun;    // since the step before, in their order
  virtual_time::ClockState clock;  // at the last arrival
  double seconds = 0;              // since the step before
  uint64_t too_stale = 0;          // that did not count (round.max_staleness)
};

// Where nobody can begin and nobody trains, the clock goes on until a client is there, for a day at
// most. Then the round goes on with those who have arrived. Where no table says who is there, it is
// tried again after a pause.
inline constexpr double kLongestWait = 24 * 60 * 60;
inline constexpr double kNobodyPause = 60;

// The rows that pass through the model in the turn of a client that begins from this base.
using PassedRows = std::function<double(const scheduler::CohortEntry&, Round base)>;

// The arrivals of round `round`, whose step moves the model of round − 1. `groups`: draws
// round.refill clients. A round has fewer arrivals only where nobody can be drawn any more.
Arrived ArrivalsOf(const RunPlan& run, const virtual_time::Devices& devices,
                   const scheduler::CohortSampler& groups, const PassedRows& passed, Round round,
                   const virtual_time::ClockState& before);

}  // namespace macaw::server
