#include "cli/sweep/seed_files.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "cli/config/resolve.h"
#include "core/safetensors.h"

namespace macaw::cli {

std::string SeedFileOf(const Config& config) {
  return absl::StrContains(config.node.model_init, kSeedInPath) ? InitFileOf(config) : "";
}

std::string SeedFileKey(uint64_t seed) { return absl::StrCat("model.init of seed ", seed); }

absl::Status CheckSeedFile(const std::string& path, uint64_t seed) {
  const absl::Status status = SafetensorsFile::Open(path).status();
  if (status.ok()) return status;
  return WithKeyError(
      absl::Status(status.code(), absl::StrCat(SeedFileKey(seed), ": ", status.message(), "; ",
                                               kSeedInPath, " asks for a file for each seed")),
      {.key = "model.init"});
}

}  // namespace macaw::cli
