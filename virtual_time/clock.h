#pragma once

#include <cstdint>

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
  friend bool operator==(const ClockState&, const ClockState&) = default;
};

// How long a round takes, which is known before it begins (closing.h).
struct RoundTime {
  ClockState before;
  double seconds = 0;
  uint64_t late = 0;        // drawn clients that were not there at the deadline
  uint64_t not_needed = 0;  // that came after enough others
};

// What a closed round tells the clock.
struct RoundFacts {
  double seconds = 0;  // that the round took
  uint64_t counted = 0, drawn = 0;
  uint64_t bytes_up = 0;    // of the counted clients together, in all phases
  uint64_t bytes_down = 0;  // of the drawn clients together, in all phases
};

// The clock after the round. A round in which nobody counted leaves `traffic.up` as it was, one
// that drew nobody `traffic.down`.
ClockState After(const ClockState& before, const RoundFacts& round);

}  // namespace macaw::virtual_time
