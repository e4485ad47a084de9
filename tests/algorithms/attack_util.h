#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

inline RoundLoop Q4Under(const AttackConfig& attack, const std::string& rule,
                         RoundLoop::Options options = {}) {
  return {Under(attack, rule, 4), Q4(), options};
}

// The honest updates of the first round of four clients.
struct FirstRound {
  std::vector<Numbers> honest;  // Δ of each client
  std::vector<bool> hostile;

  FirstRound(const AttackConfig& attack, const std::string& rule) {
    const HostileClients set(attack, 4, kSeed);
    for (size_t client = 0; client < 4; ++client) {
      RoundLoop alone(Builtin(rule), Q4(), {});
      EXPECT_TRUE(alone.Round({client}).ok());
      honest.push_back(alone.Model());  // from the origin
      hostile.push_back(set.Contains(ClientId(client)));
    }
  }
  // Mean and deviation over the honest clients.
  std::pair<double, double> Statistics(size_t coordinate, bool weighted) const {
    double total = 0, mean = 0, square = 0;
    for (size_t k = 0; k < 4; ++k) {
      if (hostile[k]) continue;
      const double w = weighted ? Q4()[k].examples : 1;
      total += w;
      mean += w * honest[k][coordinate];
      square += w * honest[k][coordinate] * honest[k][coordinate];
    }
    mean /= total;
    return {mean, std::sqrt(square / total - mean * mean)};
  }
  // The mean over all clients when hostile ones send lie(client, coordinate).
  template <typename F>
  Numbers Mean(bool weighted, F&& lie) const {
    Numbers sum = {0, 0};
    double total = 0;
    for (size_t k = 0; k < 4; ++k) {
      const double w = weighted ? Q4()[k].examples : 1;
      total += w;
      for (size_t i = 0; i < 2; ++i) sum[i] += w * (hostile[k] ? lie(k, i) : honest[k][i]);
    }
    return {sum[0] / total, sum[1] / total};
  }
};

}  // namespace macaw::algorithms
