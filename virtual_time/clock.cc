#include "virtual_time/clock.h"

namespace macaw::virtual_time {

ClockState After(const ClockState& before, const RoundFacts& round) {
  ClockState after = before;
  after.now += round.seconds;
  const auto mean = [](uint64_t bytes, uint64_t clients) {
    return static_cast<double>(bytes) / static_cast<double>(clients);
  };
  if (round.counted > 0) after.traffic.up = mean(round.bytes_up, round.counted);
  if (round.drawn > 0) after.traffic.down = mean(round.bytes_down, round.drawn);
  return after;
}

}  // namespace macaw::virtual_time
