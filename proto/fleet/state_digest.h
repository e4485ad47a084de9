#pragma once

#include <cstdint>
#include <span>

#include "core/digest.h"

namespace macaw::fleet {

// How all current client states of a run get one name, whoever computed which of them: clients are
// cut into ranges of kStateRange by id; a range's digest is over (client id, content) of those of
// its clients that keep a state, by id (state/range_digest.h); the run's is over the ranges' in
// order. Versions are left out, so that equal contents have equal digests however often a client
// was tried.
constexpr uint64_t kStateRange = 1024;

inline Digest CombineStateDigests(std::span<const Digest> ranges) {
  Digester digester;
  digester.Add(absl::string_view("macaw client states")).Add(uint64_t{ranges.size()});
  for (const Digest& range : ranges) digester.Add(std::as_bytes(std::span(range.bytes)));
  return digester.Finish();
}

}  // namespace macaw::fleet
