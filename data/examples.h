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

// What a reader returns: one block of examples in the order of the files. Row numbers in exported
// partitions refer to this order. `block` points into `keep_alive`.
struct Examples {
  std::string name;
  std::vector<int64_t> input_shape;
  int64_t classes = 0;  // 0: regression
  TransformConfig transform;
  ExampleBlock block;
  std::shared_ptr<const void> keep_alive;
  RowRange train;  // the rows that a partition divides
  // The source's own test set (its second file, t10k-*, test_batch.bin, x_test); may be empty.
  RowRange own_test;
  RowRange own_val;                        // the source's own central validation set; may be empty
  std::vector<std::string> class_names;    // of each class; empty: their numbers
  std::vector<std::string> feature_names;  // empty: unknown
  std::vector<std::string> notes;          // for people, one line each
  // The clients of each row, if the file has clients, in one of two forms. Either rows
  // group_begin[c] ... group_begin[c+1]-1 train client c, and val_group_begin and test_group_begin
  // are the same for validation and test rows (empty: there are none). Or the client of each row is
  // listed. Rows of own_test in this list are that client's own test rows; the others belong to no
  // client. Both forms are empty for sources without clients.
  std::vector<uint64_t> group_begin;
  std::vector<uint64_t> val_group_begin;
  std::vector<uint64_t> test_group_begin;
  std::vector<uint32_t> client_of_row;
  std::vector<std::string> group_names;
  bool has_clients() const { return !group_begin.empty() || !client_of_row.empty(); }
  // The mapped file whose features have not been looked at, so that it opens at once: rows are when
  // they are loaded (finite_features.h). Empty: all are finite.
  std::string unchecked;
  Digest digest;  // of all bytes that were read
};

// Storage that readers fill.
struct ExampleStore {
  std::vector<uint8_t> bytes;  // features: one of these three is used
  std::vector<float> floats;
  std::vector<int32_t> tokens;
  std::vector<int32_t> lengths;  // tokens in use of each row; empty: all tokens
  std::vector<int32_t> classes;  // labels: one of these two is used
  std::vector<float> targets;
};

// Moves `store` into an Examples with `row_elements` features per row. An empty set is an error.
absl::StatusOr<Examples> Own(ExampleStore store, uint64_t row_elements, const std::string& path);

// Labels as they were read. The reader keeps track of their places for messages.
struct ParsedLabels {
  std::vector<double> values;
  bool whole = true;  // every label is an integer that fits into 32 bits
};

// Maps whole-numbered labels to classes: the sorted distinct labels become 0 ... k-1 (-1, 1 -> 0,
// 1). `map[k]` is the label of class k. With a `limit` (data.classes) a class may be missing here,
// as on one device of a fleet, so which rows are here decides nothing: labels in 0 ... limit-1 are
// classes already, and -1 or 1 is one of two. Errors: more classes than `limit`; other labels.
struct ClassMap {
  std::vector<int64_t> map;
  std::vector<int32_t> classes;
};
absl::StatusOr<ClassMap> MapClasses(std::span<const double> labels, int64_t limit,
                                    const std::string& path);

// The labels as class names; empty if they already are 0 ... k-1.
std::vector<std::string> NamesOf(const ClassMap& map);

// The number of classes, for labels that already are classes. `limit` > 0 is the declared number.
// Without it, a largest label far above the number of distinct labels is taken for damage. Errors
// name the first wrong row.
absl::StatusOr<int64_t> CountClasses(std::span<const int32_t> labels, int64_t limit,
                                     const std::string& path);

// Notes that no row has class 0, since labels then mostly count from 1. Nothing is noted where
// `limit` (data.classes) says how many classes there are, nor of tokens, which may be labels.
void NoteFirstClass(int64_t limit, Examples& examples);

// Notes that float32 hardly tells the targets for training apart (column_spread.h). Nothing is
// noted of classes.
void NoteTargets(std::span<const double> labels, Examples& examples);

}  // namespace macaw::data
