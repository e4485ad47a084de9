#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "data/dataset.h"

namespace macaw::bench {

struct RoundTime {
  uint64_t steps = 0;
  double seconds = 0;
};

// FedAvg as one would write it around LibTorch when nothing else mattered: a thread a slot, clients
// longest first from one counter, per client a copy of the model, plain eager steps with
// cross_entropy_loss and autograd, a weighted sum, a barrier. It works on what Macaw works on
// (rows, cohorts, batch order and gather are Macaw's own; parameters and gradients are views of
// flat vectors) and knows nothing of leases, exact sums or metrics. `config` is resolved; its model
// is "logistic" or "simple_cnn".
absl::StatusOr<std::vector<RoundTime>> RunBareLoop(const cli::Config& config,
                                                   const data::Dataset& dataset, uint32_t slots);

}  // namespace macaw::bench
