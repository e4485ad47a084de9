#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "server/engine/restored.h"
#include "server/journal/journal.h"

namespace macaw::server {

// What the log and the journal of a run folder say of the moment at which its server died.
struct Recovery {
  Restored restored;
  absl::flat_hash_map<Digest, JournalPlace> sums;
  Round completed;  // the last whole round
};

// `checkpoint`: the round of the checkpoint that is there, 0 for none. An error says why the run
// cannot go on inside its round: it ended, it was not kept commit by commit, something is missing,
// or it was another configuration's (`configuration`: the digest of what decides a result). Then it
// goes back to the checkpoint.
absl::StatusOr<Recovery> Recover(const std::string& run_dir, Round checkpoint,
                                 const Digest& configuration);

std::string JournalFolder(const std::string& run_dir);

}  // namespace macaw::server
