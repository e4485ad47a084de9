#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/stored_array.h"

namespace macaw::data {

// Parses a .npy file in memory (format versions 1 to 3); the array points into `bytes`. Its shape
// and type agree with the number of its bytes, or it is an error that starts with `name`. Refused
// by name: arrays in Fortran order, big-endian, structured or of Python objects.
absl::StatusOr<StoredArray> ParseNpy(absl::string_view bytes, std::string name);

}  // namespace macaw::data
