#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/metrics.h"

// Rounds whose metrics are known by hand.
namespace macaw::server::fixtures {

inline fleet::ClientRecord Record(uint64_t client, uint32_t examples, uint64_t steps,
                                  std::vector<double> sums) {
  return {.attempt = {ClientId(client), {1, client + 1}},
          .examples = examples,
          .steps = steps,
          .sums = std::move(sums)};
}

// Losses 1, 2, 3 and 4; accuracies 1, 0.5, 0.25 and 0. The first client has by far the most
// examples.
inline PhaseReport FourClients() {
  return {.round = Round(7),
          .cohort = 5,
          .records = {Record(0, 50, 5, {100, 100, 100}), Record(2, 2, 1, {4, 8, 2}),
                      Record(3, 4, 1, {4, 12, 1}), Record(9, 4, 2, {4, 16, 0})},
          .left_out = {{.attempt = {ClientId(5), {1, 99}}}},
          .bytes_up = 4000,
          .bytes_down = 5000};
}

}  // namespace macaw::server::fixtures
