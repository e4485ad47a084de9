#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/ids.h"
#include "server/split_model.h"

namespace macaw::server {

// Replaces model.round.safetensors in the run's folder: the model after the newest round of a
// stepwise run, for whoever looks at it while the run waits. A reader sees a whole file; it is not
// made durable, because a checkpoint is what a run goes on from. The metadata have the round.
absl::Status WriteRoundModel(const std::string& run_dir, Round round, const KeptModel& model);

}  // namespace macaw::server
