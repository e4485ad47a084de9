#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cli/config/config.h"

namespace macaw::cli {

// The file of first weights that a run has by its seed ({seed} in model.init); "": it has none.
std::string SeedFileOf(const Config& config);

// The key under which Configuration::inputs has that file: "model.init of seed 3".
std::string SeedFileKey(uint64_t seed);

// Returns an error unless the file can be read as tensors.
absl::Status CheckSeedFile(const std::string& path, uint64_t seed);

}  // namespace macaw::cli
