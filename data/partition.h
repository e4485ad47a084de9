#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/options.h"

namespace macaw::data {

// What a scheme knows of the rows that it divides: the class of each (empty for regression
// targets).
struct Pool {
  uint64_t rows = 0;
  std::vector<int32_t> classes;
  int64_t class_count = 0;
};

// Assigns each row of the pool to one client: result[i] is the client of row i. Serves every scheme
// except natural and file, which read the clients from the data. Takes time O(rows + clients x
// classes); a function of (options, pool) alone. Every client gets at least min_size rows. An
// impossible request is an error that names the key of [partition]: more clients x min_size than
// rows, more classes_per_client than classes, a scheme by class for regression targets.
absl::StatusOr<std::vector<uint32_t>> AssignOwners(const PartitionOptions& options,
                                                   const Pool& pool);

// All schemes, including natural, file and auto, in the order of their documentation.
std::vector<Choice> PartitionSchemes();

}  // namespace macaw::data
