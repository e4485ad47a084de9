#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace macaw::virtual_time {

// When a round ends in virtual time: the words of [round] and of over-selection.
struct ClosingRules {
  uint64_t keep = 0;         // the first so many count, the others are not needed; 0: all
  double deadline = 0;       // seconds after the round began; 0: none
  uint64_t needed = 1;       // the deadline waits until so many have arrived …
  bool drops_below = false;  // … or drops the round, in which then nobody counts
};

// Who counts in a round.
struct Closing {
  std::vector<uint32_t> kept;  // places in the list of turns, ascending
  double seconds = 0;          // that the round took
  uint64_t late = 0;           // places that stayed empty because the deadline had passed
  uint64_t not_needed = 0;     // that came after enough others
  bool dropped = false;
};

// `seconds`: of the drawn clients' turns, each of which begins with the round. The first client is
// the one with the shortest turn. Of equal ones that cannot all count, those with the smallest
// `tie`, a number of each place, which is asked for these alone. The round ends:
//   with its last turn, or with the turn number `keep`,
//   or at the deadline, if `needed` turns have ended by then (one that ends at the deadline has),
//   or, after the deadline, with the turn number `needed`, unless drops_below.
// A round without turns takes no time. O(n log n).
Closing CloseRound(std::span<const double> seconds, const ClosingRules& rules,
                   const std::function<uint64_t(uint32_t place)>& tie);

}  // namespace macaw::virtual_time
