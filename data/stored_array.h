#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

// An array of a file, row-major and little-endian. Its bytes are the caller's.
struct StoredArray {
  std::string name;   // for messages: file and array
  char kind = 0;      // NumPy's letter: u, i, f, b, U (UTF-32) or S (bytes)
  uint64_t item = 0;  // bytes of one element
  std::vector<uint64_t> shape;
  absl::string_view data;

  uint64_t rows() const { return shape.empty() ? 0 : shape[0]; }
  uint64_t row_elements() const;  // of shape[1], shape[2], …; 1 for a list of numbers
  std::string TypeName() const;   // "float64"
  bool is_integer() const { return kind == 'u' || kind == 'i' || kind == 'b'; }
};

// Element `i` (of all elements, row-major) of an array of numbers or truth values.
int64_t IntegerAt(const StoredArray& array, uint64_t i);  // u, i, b; the largest u8 wrap around
double FloatAt(const StoredArray& array, uint64_t i);     // f4, f8
// Of texts (U as UTF-8, S as its bytes) and of whole numbers, for names. What comes from bytes, or
// from code points that Unicode does not have, may be no UTF-8.
std::string TextAt(const StoredArray& array, uint64_t i);

// An error that begins with the array's name.
absl::Status RefuseArray(const StoredArray& array, absl::string_view why);

}  // namespace macaw::data
