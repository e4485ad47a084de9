#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// Clients whose rows lie elsewhere: a JSON file has their names and numbers of rows, and all blocks
// have null features and labels (DatasetInfo::declared).
//   {"clients": [{"name": "hospital-7", "train": 600, "validation": 0, "test": 100}],
//    "input_shape": [1, 28, 28], "classes": 10}
// Optional: "features" ("float32", "uint8" or "int32"), "digest" (a text that changes with the
// rows). Without "classes" the labels are numbers. Errors name the file and the key.
absl::StatusOr<std::unique_ptr<Dataset>> ReadDeclared(const std::string& path);

}  // namespace macaw::data
