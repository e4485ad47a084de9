#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

struct Overlap {
  uint64_t test_rows = 0;  // the central test rows and the clients' own
  // Test rows whose features and label equal those of some client's training row.
  uint64_t in_training = 0;
};

// Reads every row once, so it is meant for `macaw data`, not for runs. Memory: 8 bytes per training
// row.
absl::StatusOr<Overlap> TestRowsInTraining(const Dataset& dataset);

}  // namespace macaw::data
