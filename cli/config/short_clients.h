#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "plan/local.h"

namespace macaw::cli {

// The clients that have training rows, but too few for a step (plan/local_steps.h).
struct ShortClients {
  uint64_t clients = 0;
  uint64_t examples = 0;  // their training rows
  uint64_t tokens = 0;    // in these, of sequences
};

// Looks at every client, unless each row is enough. Reads rows only to count tokens.
absl::StatusOr<ShortClients> ShortClientsOf(const LocalConfig& local, const data::Dataset& dataset);

}  // namespace macaw::cli
