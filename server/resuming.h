#pragma once

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

// The newest checkpoint of a resumed run. nullopt: the run begins with its first round. Errors: no
// run has begun there, its checkpoints are lost, another configuration wrote them, or the run is
// done; of a new run: the folder has checkpoints of another one.
absl::StatusOr<std::optional<Checkpoint>> CheckpointToGoOnFrom(const Options& options,
                                                               const ModelKeeper& keeper);

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
