#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/stored_array.h"

namespace macaw::data {

// An HDF5 file that is open for reading. Only the module libmacaw_hdf5.so, which links the HDF5
// library, has one. Errors name the file and the place in it. Thread-safe (one call at a time).
class Hdf5File {
 public:
  virtual ~Hdf5File() = default;
  // The names in a group ("examples/f0000_14"), sorted.
  virtual absl::StatusOr<std::vector<std::string>> Members(const std::string& group) = 0;
  // Reads a data set of integers, floats or texts into `bytes`, to which the array then points.
  // Texts become bytes (kind S) of one length, padded with zeros.
  virtual absl::StatusOr<StoredArray> Read(const std::string& path, std::string& bytes) = 0;
};

// What the module's one symbol, `macaw_hdf5`, returns.
struct Hdf5Entry {
  const char* build_tag;  // MACAW_BUILD_TAG
  absl::StatusOr<std::unique_ptr<Hdf5File>> (*open)(const std::string& path);
};

// The module, which is loaded when it is first needed and stays loaded. The error of a missing
// module says how to get it.
absl::StatusOr<const Hdf5Entry*> Hdf5Module();

// Opens a file with the module.
absl::StatusOr<std::unique_ptr<Hdf5File>> OpenHdf5(const std::string& path);

}  // namespace macaw::data
