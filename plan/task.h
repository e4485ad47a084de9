#pragma once

#include <cstdint>
#include <string>

namespace macaw {

// What a model is for: it decides loss and metrics. kAuto: as the data says, until the plan is
// resolved.
enum class TaskKind : uint8_t {
  kClassification = 0,
  kBinary = 1,
  kRegression = 2,
  kNextToken = 3,
  kAuto = 4,
  kReconstruction = 5  // of a row's own features; labels are not read
};

// "classification", "next-token"
std::string Name(TaskKind task);

}  // namespace macaw
