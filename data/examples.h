#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "data/dataset.h"

namespace macaw::data {

struct RowRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// What a reader hands over: one block of examples in the order of the files; row numbers of
// exported partitions count in this order. `block` points into `keep_alive`.
struct Examples {
  std::string name;
  std::vector<int64_t> input_shape;
  int64_t classes = 0;  // 0: regression
  TransformConfig transform;
  ExampleBlock block;
  std::shared_ptr<const void> keep_alive;
  RowRange train;     // what a partition divides
  RowRange own_test;  // the source's own test set (its second file, t10k-*, test_batch.bin); may be
                      // empty
  std::vector<std::string> class_names;    // of each class; empty: their numbers
  std::vector<std::string> feature_names;  // empty: unknown
  // Who owns which rows in the file, when it says so, in one of two ways: rows group_begin[c] ...
  // group_begin[c+1]-1 train client c, and test_group_begin likewise; or the client of each row,
  // those of own_test being the client's own test rows. Both empty for sources without clients.
  std::vector<uint64_t> group_begin;
  std::vector<uint64_t> test_group_begin;
  std::vector<uint32_t> client_of_row;
  std::vector<std::string> group_names;
  bool has_clients() const { return !group_begin.empty() || !client_of_row.empty(); }
  Digest digest;  // of every byte that was read
};

// Owned storage that readers fill.
struct ExampleStore {
  std::vector<uint8_t> bytes;  // features, one of the three
  std::vector<float> floats;
  std::vector<int32_t> tokens;
  std::vector<int32_t> lengths;  // of each row, tokens in use; empty: all of them
  std::vector<int32_t> classes;  // labels, one of the two
  std::vector<float> targets;
};

// Moves `store` into an Examples whose block has `row_elements` features a row. Refuses an empty
// set.
absl::StatusOr<Examples> Own(ExampleStore store, uint64_t row_elements, const std::string& path);

// Labels as read, whole numbers or not. Where each came from is kept for messages by the reader.
struct ParsedLabels {
  std::vector<double> values;
  bool whole = true;  // every one is an integer that fits 32 bits
};

// Classes of whole-numbered labels: sorted distinct values become 0 ... k-1 (-1, 1 -> 0, 1).
// `map[k]` is the label that class k had. Errors when there are more than `limit` (0: no limit)
// classes.
struct ClassMap {
  std::vector<int64_t> map;
  std::vector<int32_t> classes;
};
absl::StatusOr<ClassMap> MapClasses(std::span<const double> labels, int64_t limit,
                                    const std::string& path);

// The labels as names, where they are not 0 ... k-1 already; else none.
std::vector<std::string> NamesOf(const ClassMap& map);

// The number of classes of labels that are classes already. `limit` > 0 is the declared number;
// without one, a largest label far above the number of labels that occur is taken for damage.
// Errors name the first offending row.
absl::StatusOr<int64_t> CountClasses(std::span<const int32_t> labels, int64_t limit,
                                     const std::string& path);

}  // namespace macaw::data
