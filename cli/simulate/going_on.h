#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"

namespace macaw::cli {

// Returns an error unless the run of `before`, in `folder`, may go on as `config` says: with as
// many rounds or more, its owners and its schedule. Otherwise what people should know of it; empty:
// nothing.
absl::StatusOr<std::string> CheckGoesOn(const Config& config, const Config& before,
                                        const std::string& folder);

}  // namespace macaw::cli
