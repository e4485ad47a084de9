#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/random.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {

// Clients that differ, f_i = ½‖x − b_i‖² with normal b_i of deviation `spread`, and weigh the same:
// the optimum is the mean of theirs.
struct Bowls {
  Bowls(size_t clients, size_t numbers, uint64_t seed, double spread) : optimum(numbers) {
    RandomStream random({.seed = seed});
    for (size_t client = 0; client < clients; ++client) {
      Numbers b(numbers);
      for (size_t i = 0; i < numbers; ++i) {
        b[i] = spread * random.Normal();
        optimum[i] += b[i] / static_cast<double>(clients);
      }
      population.push_back({std::make_shared<SquaredDistance>(b), 1});
    }
  }

  std::vector<TestPopulationClient> population;
  Numbers optimum;
};

}  // namespace macaw::algorithms
