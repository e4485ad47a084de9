#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/reader.h"
#include "cli/simulate/simulate.h"

namespace macaw::cli {

// The changes that the command line makes to the configuration file: first `--set`, then the short
// forms in a fixed order. The meaning of --clients depends on the data source, which these or the
// document give.
absl::StatusOr<std::vector<Override>> OverridesOf(const SimulateOptions& options,
                                                  const Document& document);

// Checks that a resumed run is still the run that was begun, whose file `document` is. Only these
// may change: where and how it is computed, what it writes beside its results, and a later end. A
// key that is given the value that it has is no change. The error names the first key that must not
// change.
absl::Status CheckResumable(const std::vector<Override>& overrides, const Document& document,
                            const sdk::Catalogue& catalogue);

}  // namespace macaw::cli
