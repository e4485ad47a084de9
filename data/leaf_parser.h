#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

struct LeafUser {
  std::string name;
  uint64_t first_row = 0;    // index into LeafRows.features
  uint64_t first_label = 0;  // index into LeafRows.labels
  uint64_t rows = 0;
};

// The rows of one or more LEAF files. Rows of text (Shakespeare: 80 characters and the next one)
// are stored as tokens of vocabulary.h, which are numbers like other features.
struct LeafRows {
  std::vector<LeafUser> users;  // in the order of the files' "users"
  std::vector<float> features;  // `width` numbers per row; rows of text have their own lengths
  std::vector<double> labels;
  uint64_t width = 0;             // 0: no row seen yet; for text: the longest row
  std::vector<uint32_t> lengths;  // for text: the length of each row; else empty
  bool whole = true;              // every label is a whole number
};

// Parses one file as a stream of events, so memory is needed for the numbers but not for a JSON
// tree. Errors name the user and the row, or the byte at which the JSON is invalid; `rows` is
// unusable after an error.
absl::Status AppendLeaf(absl::string_view text, LeafRows& rows);

// Pads every row of text to `width` tokens with zeros.
void PadText(LeafRows& rows, uint64_t width);

}  // namespace macaw::data
