#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::training {

// The numbers of the GPUs that workers.devices names ("cuda:0"), of `count` that there are; all of
// them if it names none. Errors name the one that is wrong, unknown or there twice.
absl::StatusOr<std::vector<int>> ChooseGpus(std::span<const std::string> names, int count);

}  // namespace macaw::training
