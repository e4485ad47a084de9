#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace macaw::cli {

// The time that `option` names: seconds, or a number with its unit, as in 90s, 30m or 30min, 12h
// and 30d. "": `otherwise`. Refuses times under a second and beyond an authority's lifetime.
absl::StatusOr<absl::Duration> ParseLifetime(absl::string_view option, absl::string_view text,
                                             absl::Duration otherwise);

}  // namespace macaw::cli
