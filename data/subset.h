#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// Clients begin … end−1 of a dataset, which keep the names they have there, with or without its
// central test set. For a node that holds only some of the clients.
struct SubsetRange {
  uint64_t begin = 0, end = 0;
  bool central_test = true;
};

// Takes ownership of the dataset. Rows are not copied. A range that does not lie in the dataset is
// an error.
absl::StatusOr<std::unique_ptr<Dataset>> TakeSubset(std::unique_ptr<Dataset> dataset,
                                                    const SubsetRange& range);
// The same for a dataset that the caller keeps alive.
absl::StatusOr<std::unique_ptr<Dataset>> SubsetOf(const Dataset& dataset, const SubsetRange& range);

}  // namespace macaw::data
