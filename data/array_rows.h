#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/stored_array.h"

namespace macaw::data {

// How the rows of an array become rows of a dataset.
struct RowShape {
  std::vector<int64_t> input_shape;
  // Images with channels last (height x width x channels), which are stored with channels first.
  bool channels_last = false;
  bool operator==(const RowShape&) const = default;
};

// The shape of the rows of `x`. Images without channels get one: rows of bytes with two axes, and
// rows of floats with two if `images` says that they are. Images with channels last (at most 4) are
// turned.
absl::StatusOr<RowShape> ShapeOfRows(const StoredArray& x, bool images);

// Appends all rows of `x`: bytes, floats (which must be finite), or tokens (integers of 32 and 64
// bits, 0 … 2³¹ − 1). Other types are refused by name.
absl::Status AppendFeatures(const StoredArray& x, const RowShape& shape, ExampleStore& store);

// For people, of the first column of float64 numbers that float32 hardly tells apart
// (column_spread.h). "": there is none, or the rows are no lists of such numbers.
std::string NoteOnSpread(const StoredArray& x);

// The same of the targets `y`: "y has numbers from …".
std::string NoteOnTargets(const StoredArray& y);

// Appends `rows` labels: integers are classes from 0, floats are targets.
absl::Status AppendLabels(const StoredArray& y, uint64_t rows, ExampleStore& store);

}  // namespace macaw::data
