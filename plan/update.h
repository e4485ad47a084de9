#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw {

// How clients make what they send small (algorithms/around/compressed.h).
struct UpdateConfig {
  std::vector<std::string> codec;  // lines that act one after the other; empty: as it is
  std::string feedback = "auto";   // what becomes of that which the codec drops
  double residual_decay = 1;       // ρ: the part of a residual that stays for each round away
  uint32_t adapt = 0;              // rounds between choices of ranks (L-GreCo); 0: one rank

  bool on() const { return !codec.empty(); }
  friend bool operator==(const UpdateConfig&, const UpdateConfig&) = default;
};

// The keys of [update].
settings::Section<UpdateConfig> UpdateSection();

}  // namespace macaw
