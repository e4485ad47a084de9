#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "server/engine/restored.h"
#include "server/journal/journal.h"
#include "server/log/writer.h"

namespace macaw::server {

// The state of a run at the moment when its server died, as the log and the journal tell it.
struct Recovery {
  Restored restored;
  absl::flat_hash_map<Digest, JournalPlace> sums;
  Round completed;    // the last completed round
  log::KnownEnd end;  // of the log
  std::string cut;    // why records are dropped from the log; empty: none are
  // Clients whose states the run was resumed without (RunOpened::reset_states), while no StatesLost
  // says so yet: its server died before the first round.
  std::vector<ClientId> reset_states = {};
};

// What a run that continues knows apart from its log and journal.
struct RecoverFrom {
  Round checkpoint;        // the newest; 0 for none
  uint64_t log_bytes = 0;  // of the log, that were synced before the checkpoint was written
  // Digests of everything that decides a result: as this release writes it, and as the one that
  // wrote the checkpoint did, which may have had fewer keys.
  std::vector<Digest> configurations;
  // Whether metrics.jsonl has the row of every evaluated round between the checkpoint and this one.
  // Rounds that are closed in the log are not evaluated again. Null: all rows are there.
  std::function<bool(Round)> has_rows_before;
  // With a stop rule a round is not opened, otherwise it is not closed, before those rows exist.
  bool rows_before_opening = false;
};

// Reads the log and the journal.
//
// A crash of the machine keeps what was synced, and any part of what was only written. So the log
// may tell of a node, part or row whose own bytes are lost. Nothing that follows such a record was
// acknowledged: the log is synced after all of them, and answers are sent after the log. The log is
// then cut before the record. If the record had been synced, its data was lost otherwise, and that
// is an error.
//
// An error says why the run cannot continue inside its round: it has ended, its commits were not
// durable, something is missing, or it had another configuration. The run then continues from the
// checkpoint. InvalidArgument: another configuration has completed rounds since the checkpoint,
// which would be lost.
absl::StatusOr<Recovery> Recover(const std::string& run_dir, const RecoverFrom& from);

// The attempts whose client states the next server may need, beside those that the checkpoint
// names: the accepted ones of rounds after the checkpoint, and those whose nodes may still send
// what they trained. None if the run does not go on inside a round. Reads the log alone, so some of
// them may keep no state.
absl::StatusOr<std::vector<Attempt>> AttemptsSince(const std::string& run_dir, Round checkpoint);

std::string JournalFolder(const std::string& run_dir);
// Where the wire keeps uploads that are not complete. They begin and end with the journal.
std::string UploadsFolder(const std::string& run_dir);

}  // namespace macaw::server
