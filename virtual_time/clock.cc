#include "virtual_time/clock.h"

namespace macaw::virtual_time {

ClockState After(ClockState end, const RoundFacts& round) {
  const auto mean = [](uint64_t bytes, uint64_t clients) {
    return static_cast<double>(bytes) / static_cast<double>(clients);
  };
  if (round.counted > 0) end.traffic.up = mean(round.bytes_up, round.counted);
  if (round.drawn > 0) end.traffic.down = mean(round.bytes_down, round.drawn);
  return end;
}

}  // namespace macaw::virtual_time
