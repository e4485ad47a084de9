#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/split_model.h"

namespace macaw::server {

// base.safetensors in the folder of a run with frozen tensors: these tensors, once, for checkpoints
// that lack them. Its metadata has the digest of their blob.

std::string BaseFileIn(const std::string& run_dir);
// Whether KeepBaseFile has written the file.
bool IsKeptBase(const std::string& path);
// Before the run changes anything: an error if the folder has another file of that name, which may
// be a user's. `resume`: the run goes on, so a file that cannot be read was its own.
absl::Status CheckBaseFile(const std::string& run_dir, bool resume);
// Writes it, unless it is there.
absl::Status KeepBaseFile(const std::string& run_dir, const SplitModel& split);

}  // namespace macaw::server
