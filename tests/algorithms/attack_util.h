#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "algorithms/around/attack.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {

constexpr uint64_t kSeed = 1;

inline AttackConfig Of(const std::string& kind, double fraction, std::optional<double> scale = {}) {
  return {.kind = kind, .fraction = fraction, .scale = scale};
}

inline Description Under(const AttackConfig& attack, const std::string& rule, uint64_t clients) {
  return Attacked(Builtin(rule), attack, HostileClients(attack, clients, kSeed));
}

}  // namespace macaw::algorithms
