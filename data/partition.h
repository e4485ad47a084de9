#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/options.h"

namespace macaw::data {

// What a scheme sees of the rows that it divides: the class of each (empty for regression targets).
struct Pool {
  uint64_t rows = 0;
  std::vector<int32_t> classes;
  int64_t class_count = 0;
};

// Gives each row of the pool to one client: result[i] is the client of row i. Every scheme but
// natural and file, which read their answer from the data. Linear in rows + clients x classes, a
// function of (options, pool) only. Afterwards every client has at least min_size rows. Refuses,
// naming the key of [partition], what cannot be done: more clients x min_size than rows, more
// classes_per_client than classes, a scheme by class over regression targets.
absl::StatusOr<std::vector<uint32_t>> AssignOwners(const PartitionOptions& options,
                                                   const Pool& pool);

// All schemes, natural, file and auto included, in the order of their documentation.
std::vector<Choice> PartitionSchemes();

}  // namespace macaw::data
