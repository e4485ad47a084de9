#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/reader.h"
#include "cli/simulate/simulate.h"

namespace macaw::cli {

// What the command line changes of the file, `--set` first, then the short forms in a fixed order.
// The source of the data, as they or the document give it, decides what --clients means.
absl::StatusOr<std::vector<Override>> OverridesOf(const SimulateOptions& options,
                                                  const Document& document);

// A run that goes on is the run that was begun: only where and how it is computed, what it writes
// beside its results and a later end may change. The error names the first key that is something
// else.
absl::Status CheckResumable(const std::vector<Override>& overrides);

}  // namespace macaw::cli
