#pragma once

#include <cstdint>
#include <string>

namespace macaw::cli {

// `macaw state …` on a run's folder: what its clients keep between rounds. The run's newest
// checkpoint tells which version of a client is current.

// Counts, bytes, versions by checkpoint, orphans.
int StateList(const std::string& run);

// Reads every version that a checkpoint names. If some are missing or damaged, fails and names
// their clients.
int StateVerify(const std::string& run);

// Deletes versions that no checkpoint names. Refused while the run is going on.
int StateSweep(const std::string& run);

// Shows a client's current version: its header, and size and norms of each item.
int StateShow(const std::string& run, uint64_t client);

// Writes a client's state as safetensors: one tensor ITEM/ENTRY for each entry of each item.
int StateExport(const std::string& run, uint64_t client, const std::string& out);

}  // namespace macaw::cli
