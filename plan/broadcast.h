#pragma once

#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw {

// How the server makes the model small that it sends down (algorithms/around/coded_broadcast.h).
struct BroadcastConfig {
  std::vector<std::string> codec;  // as UpdateConfig::codec; empty: the model as it is
  std::string of = "auto";         // what the codec acts on

  bool on() const { return !codec.empty(); }
  friend bool operator==(const BroadcastConfig&, const BroadcastConfig&) = default;
};

// The keys of [broadcast].
settings::Section<BroadcastConfig> BroadcastSection();

}  // namespace macaw
