#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace macaw {

// A number with a type of its own, so that ids of different kinds cannot be mixed up. Ordered,
// hashable, printable.
template <typename Tag, typename Rep>
struct StrongId {
  using rep = Rep;
  Rep value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value);
  }
  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) {
    return out << +id.value;
  }
};

using ClientId = StrongId<struct ClientIdTag, uint64_t>;  // stable for the life of a population
using Round = StrongId<struct RoundTag, uint32_t>;  // the first round is 1; 0 is "before training"
using Phase = StrongId<struct PhaseTag, uint8_t>;   // most algorithms have the single phase 0
using WorkerId = StrongId<struct WorkerIdTag,
                          uint32_t>;  // dense, by registration; a restarted worker is a new one
// The name of a worker's session, sent with every call. It is random, so that nobody can guess
// another worker's. 0: none.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;

// Identifies one hand-out of work. `epoch` grows with every start of the server (and is fsynced
// before the first lease), `counter` grows with every hand-out. So a fence is never used twice, and
// an older fence is recognised as stale.
struct Fence {
  uint32_t epoch = 0;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const Fence&, const Fence&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Fence& f) {
    return H::combine(std::move(h), f.epoch, f.counter);
  }
};

// One attempt to train one client in a round.
struct Attempt {
  ClientId client;
  Fence fence;
  friend constexpr auto operator<=>(const Attempt&, const Attempt&) = default;
};

}  // namespace macaw
