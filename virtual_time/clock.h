#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "virtual_time/devices.h"

namespace macaw::virtual_time {

// The virtual clock of a run between two rounds: all of it that a resumed run needs.
//
// `traffic` is what a client moves in its turn, as the round before told: the bytes that its
// counted clients sent and its drawn ones fetched, divided by their numbers. Who is in time is
// decided before anybody trains, so a turn cannot be timed by its own bytes. In the first round it
// is the model's floats each way.
struct ClockState {
  double now = 0;  // seconds since the run began
  Traffic traffic;
  // Of a run whose rounds do not wait for each other (server/engine/arrivals.h).
  struct Training {
    double arrives = 0;  // on this clock
    ClientId client;
    uint64_t rows = 0;    // its training rows
    Round base;           // from whose model it trains
    uint64_t number = 0;  // in the order of beginning, from 0
    friend bool operator==(const Training&, const Training&) = default;
  };
  std::vector<Training> training;  // the clients that train now, in the order of their arrival
  uint64_t groups = 0, begun = 0;  // groups that were drawn, clients that have begun
  // Of a run whose rounds overlap (server/engine/timed_round.h), on this clock.
  double before = 0;  // when the round before the last one ended
  double worked = 0;  // when the clients of the last round had done their work
  friend bool operator==(const ClockState&, const ClockState&) = default;
};

// A round in virtual time, which is known before anybody trains.
struct RoundTime {
  ClockState end;      // when it ends, with the traffic from which its turns were timed
  double seconds = 0;  // that it takes
  // Places that stayed empty because the deadline had passed; where rounds do not wait for each
  // other, arrivals that do not count since their models are older than round.max_staleness.
  uint64_t late = 0;
  uint64_t not_needed = 0;    // that came after enough others
  bool asynchronous = false;  // it did not wait for the round before
  // The rounds after whose models clients began that train when it ends and can still count,
  // ascending.
  std::vector<Round> bases = {};
};

// What a closed round tells the clock.
struct RoundFacts {
  uint64_t counted = 0, drawn = 0;
  uint64_t bytes_up = 0;    // of the counted clients together, in all phases
  uint64_t bytes_down = 0;  // of the drawn clients together, in all phases
};

// The clock after the round. A round in which nobody counted leaves `traffic.up` as it was, one
// that drew nobody `traffic.down`.
ClockState After(ClockState end, const RoundFacts& round);

}  // namespace macaw::virtual_time
