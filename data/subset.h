#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// The clients begin … end−1 of a dataset, named by their numbers there, with its central test set
// or without. What a node has that does not hold everybody.
struct SubsetRange {
  uint64_t begin = 0, end = 0;
  bool central_test = true;
};

// Takes the dataset over. Rows are those of the dataset, not copied. Refuses a range that does not
// lie within it.
absl::StatusOr<std::unique_ptr<Dataset>> TakeSubset(std::unique_ptr<Dataset> dataset,
                                                    const SubsetRange& range);
// The same of a dataset that outlives it.
absl::StatusOr<std::unique_ptr<Dataset>> SubsetOf(const Dataset& dataset, const SubsetRange& range);

}  // namespace macaw::data
