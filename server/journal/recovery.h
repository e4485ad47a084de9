#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "server/engine/restored.h"
#include "server/journal/journal.h"

namespace macaw::server {

// The state of a run at the moment when its server died, as the log and the journal tell it.
struct Recovery {
  Restored restored;
  absl::flat_hash_map<Digest, JournalPlace> sums;
  Round completed;  // the last completed round
};

// Reads the log and the journal. `checkpoint`: the round of the newest checkpoint, 0 for none.
// `configuration`: the digest of everything that decides a result. An error says why the run cannot
// continue inside its round: it has ended, its commits were not durable, something is missing, or
// it had another configuration. The run then continues from the checkpoint.
absl::StatusOr<Recovery> Recover(const std::string& run_dir, Round checkpoint,
                                 const Digest& configuration);

std::string JournalFolder(const std::string& run_dir);
// Where the wire keeps uploads that are not complete. They begin and end with the journal.
std::string UploadsFolder(const std::string& run_dir);

}  // namespace macaw::server
