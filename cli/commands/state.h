#pragma once

#include <cstdint>
#include <string>

namespace macaw::cli {

// `macaw state …` on the folder of a run: what its clients keep between rounds. Which version of a
// client is current, the run's newest checkpoint says.

// Counts, bytes, versions by checkpoint, orphans.
int StateList(const std::string& run);

// Reads every version that a checkpoint names. Fails with the clients whose state is missing or
// damaged.
int StateVerify(const std::string& run);

// Deletes what no checkpoint names. Not beside a run that goes on.
int StateSweep(const std::string& run);

// One client's current version: its header, and count and norms of each item.
int StateShow(const std::string& run, uint64_t client);

// Writes one client's state as safetensors: a tensor ITEM/ENTRY for each entry of each item.
int StateExport(const std::string& run, uint64_t client, const std::string& out);

}  // namespace macaw::cli
