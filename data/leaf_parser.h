#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

struct LeafUser {
  std::string name;
  uint64_t first_row = 0;    // in LeafRows.features
  uint64_t first_label = 0;  // in LeafRows.labels
  uint64_t rows = 0;
};

// The rows of one or more LEAF files. Rows of text (Shakespeare: 80 characters and the one behind
// them) are tokens of vocabulary.h, held as numbers like any feature.
struct LeafRows {
  std::vector<LeafUser> users;  // in the order of the files' "users"
  std::vector<float> features;  // of each row, `width` of them; of text, as many as it is long
  std::vector<double> labels;
  uint64_t width = 0;             // 0: no row seen yet; of text, the longest row
  std::vector<uint32_t> lengths;  // of text, of each row; else empty
  bool whole = true;              // every label is a whole number
};

// Parses one file as a stream of events: memory is that of the numbers, not of a JSON tree. Errors
// name the user and the row, or the byte where the JSON breaks; `rows` is unusable after one.
absl::Status AppendLeaf(absl::string_view text, LeafRows& rows);

// Gives every row of text `width` tokens, the further ones 0.
void PadText(LeafRows& rows, uint64_t width);

}  // namespace macaw::data
