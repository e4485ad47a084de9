#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

struct Overlap {
  uint64_t test_rows = 0;    // the central ones and the clients' own
  uint64_t in_training = 0;  // of them, equal to a training row of some client: features and label
};

// Reads every row once: for people who look at data, not for runs. Memory is 8 bytes a training
// row.
absl::StatusOr<Overlap> TestRowsInTraining(const Dataset& dataset);

}  // namespace macaw::data
