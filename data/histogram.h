#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/options.h"
#include "data/partition.h"
#include "data/splits.h"

namespace macaw::data {

// How many rows of each class each client has: a division that was measured elsewhere.
struct Histogram {
  uint64_t clients = 0;
  uint64_t classes = 0;
  std::vector<uint32_t> counts;  // client by client
  uint32_t Of(uint64_t client, uint64_t a_class) const {
    return counts[client * classes + a_class];
  }
};

// Reads a matrix clients x classes of whole numbers from 0: a .npy array, the only array of an .npz
// archive (or the one that is called `histogram`), or a text with a line of numbers for each client
// (commas, semicolons, tabs or blanks between them; a first line of words is skipped). Empty cells
// are refused, and a first line 0, 1, ..., which may be a header. Errors name the file and the
// place. Blocking.
absl::StatusOr<Histogram> ReadHistogram(const std::string& path);

// The rows of the clients, as positions in the pool. Each client gets its numbers of rows of each
// class, drawn without replacement from the seed.
struct HistogramDivision {
  RowLists lists;                  // ascending for each client
  std::vector<std::string> names;  // the clients' numbers in the histogram; empty: all in order
  std::vector<std::string> notes;  // for people
};

// `options.clients` of the histogram's clients, drawn from the seed, in the histogram's order
// (fewer are a part of more); 0: all. If the pool has too few rows of a class, every client gets
// the same share of its rows of every class, so that its mix of classes stays; a note says the
// share. No row is moved to meet min_size. Refused: other classes than the pool's, and a class of
// which the pool has no row.
absl::StatusOr<HistogramDivision> DivideByHistogram(const PartitionOptions& options,
                                                    const Histogram& histogram, const Pool& pool);

}  // namespace macaw::data
