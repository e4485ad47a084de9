#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/checkpoint.h"
#include "server/coordinator.h"
#include "server/early_stopping.h"
#include "server/model_keeper.h"

// What a resumed run continues from. None of this writes.
namespace macaw::server {

// The newest checkpoint of a resumed run. nullopt: there is none. Errors: another configuration
// wrote it, or the run is done; of a new run: the folder has checkpoints of another one.
absl::StatusOr<std::optional<Checkpoint>> CheckpointToGoOnFrom(const Options& options,
                                                               const ModelKeeper& keeper);

// Whether a run without a checkpoint, which cannot continue inside a round either, may begin again
// with its first round and the same run_id: it was killed before its first checkpoint. A run that
// came further has lost its checkpoints. That is an error, so that its other files are not deleted
// without the user's consent.
absl::Status CheckBeginsAgain(const Options& options);

// How far a run with durable commits has come.
struct DurableRounds {
  Round completed, opened;  // the newest ones
};
// Checks the configuration of a run that continues inside a round. Returns an error if it has fewer
// rounds than the run has begun, or if its stop rule or budget would have ended the run earlier.
// `metrics_bytes`: of metrics.jsonl at the checkpoint. `early_stopping` has observed these rows.
absl::Status CheckGoesOnAfter(const Options& options, const DurableRounds& rounds,
                              uint64_t metrics_bytes, EarlyStopping early_stopping);

// Gives `keeper` the frozen tensors with which the checkpoint was written. An error if neither the
// initial model nor base.safetensors has them.
absl::Status TakeBaseOf(const Checkpoint& checkpoint, const std::string& run_dir,
                        ModelKeeper& keeper);

// Feeds the rows that a resumed run keeps to the stop rule and the budget. Returns an error if one
// of them ends the run there: one more round would make another result than this configuration
// does.
absl::Status ReplayStopRule(const Options& options, const Checkpoint& checkpoint,
                            EarlyStopping& early_stopping);

// The client states with which a resumed run continues, without those of Options::reset_states. An
// error if one of these clients has none.
absl::StatusOr<VersionIndex> VersionsAfter(const Options& options, const Checkpoint& checkpoint);

}  // namespace macaw::server
