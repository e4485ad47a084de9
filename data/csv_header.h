#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw::data {

// What the first line of a table may be that has a number among its cells.
enum class FirstLine : uint8_t {
  kRow,
  kPerhapsHeader,  // read as a row, which is said
  kHeader,
};

// What the columns of a table are for, as far as its first line is judged by them.
struct JudgedColumns {
  size_t label = 0;
  std::vector<bool> is_feature;  // of each column
};

// Judges the first line of `text` by up to a thousand lines behind it. pandas writes the numbers
// of columns without names: "0,1,2". Such a line is a header where it is hardly a row: its columns
// of features have fractions alone; its label is a word and the others are numbers, or the reverse;
// or its label is no other row's. One thread.
FirstLine JudgeFirstLine(absl::string_view text, char separator, const JudgedColumns& columns);

}  // namespace macaw::data
