#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

struct Overlap {
  uint64_t test_rows = 0;  // the central test rows and the clients' own
  // Test rows whose features and label equal those of some client's training row.
  uint64_t in_training = 0;
};

// Reads every row once. Memory: 8 bytes per training row.
absl::StatusOr<Overlap> TestRowsInTraining(const Dataset& dataset);

// The same as a sentence; "" if there are none, or if the training rows have more than so many
// values.
std::string OverlapNote(const Dataset& dataset, uint64_t most_values);

}  // namespace macaw::data
