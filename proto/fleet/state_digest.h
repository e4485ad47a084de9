#pragma once

#include <cstdint>
#include <span>

#include "core/digest.h"

namespace macaw::fleet {

// How all current client states of a run get one name, whoever keeps which of them: each has a
// digest over (client, content), and the name is over how many there are and the XOR of theirs. So
// it may be put together from any sets of clients (state/range_digest.h gives the XOR of one).
// Versions are left out: equal contents have equal digests however often a client was tried.
constexpr uint64_t kStateRange = 1024;  // clients, that are asked for together

inline Digest CombineStateDigests(uint64_t states, std::span<const Digest> sums) {
  Digest all;
  for (const Digest& sum : sums) all ^= sum;
  Digester digester;
  digester.Add(absl::string_view("macaw client states"))
      .Add(states)
      .Add(std::as_bytes(std::span(all.bytes)));
  return digester.Finish();
}

}  // namespace macaw::fleet
