#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cli/config/config.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// The folder of a run's owner, beside its other files: its rows (data.safetensors, the prepared
// form), its clients' states and its scratch.
std::string OwnerFolder(const std::string& run, uint32_t owner);
std::string OwnerName(uint32_t owner);

// Rehearses a deployment on one machine: gives each of the first `config.node.workers.owners`
// clients a folder that holds only its own rows. Existing files are kept. The error for a client
// without any rows names it.
absl::Status MakeOwners(const Config& config, const sdk::Catalogue& catalogue,
                        const std::string& run);

}  // namespace macaw::cli
