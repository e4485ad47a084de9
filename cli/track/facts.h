#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/track/tracker.h"

namespace macaw::cli {

// What a run's folder says of the run. Errors name the file that is missing.
absl::StatusOr<RunFacts> ReadFacts(const std::string& folder);
RunEnd ReadEnd(const std::string& folder);

}  // namespace macaw::cli
