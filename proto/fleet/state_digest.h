#pragma once

#include <cstdint>
#include <span>

#include "core/digest.h"

namespace macaw::fleet {

// One digest for all current client states of a run, independent of which node keeps which state.
// Each state has a digest over (client, content). The digest of the run is over the number of
// states and the XOR of their digests, so it can be combined from any sets of clients
// (state/range_digest.h gives the XOR of one set). Versions are not part of it: equal contents have
// equal digests, however often a client was tried.
constexpr uint64_t kStateRange = 1024;  // clients per request

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
