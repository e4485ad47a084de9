#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace macaw {

// A number that cannot be mistaken for another kind of number. Ordered, hashable, printable.
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
// What a worker calls itself by in every call: random, so that nobody can guess another's. 0: none.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;

// Names one hand-out of work. `epoch` grows with every start of the server (fsynced before the
// first lease), `counter` with every hand-out, so a fence is never used twice and any older one is
// recognised as stale.
struct Fence {
  uint32_t epoch = 0;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const Fence&, const Fence&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Fence& f) {
    return H::combine(std::move(h), f.epoch, f.counter);
  }
};

// One try of one client in a round.
struct Attempt {
  ClientId client;
  Fence fence;
  friend constexpr auto operator<=>(const Attempt&, const Attempt&) = default;
};

}  // namespace macaw
