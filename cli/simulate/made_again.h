#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"

// What a command checks before it makes a run again (`macaw verify`, `macaw replay --without`).
namespace macaw::cli {

// Returns an error unless the key is the path of a file that may have moved, or only says where and
// how the run is computed. `who`: keeps the others, "a verification".
absl::Status CheckMaySet(const Override& override, absl::string_view who);

// Opens the data of the configuration. FailedPrecondition: they have another digest. Passes
// simulations with owners, whose server alone knows the digest of all parts.
absl::Status CheckDataOf(const Document& document, const std::vector<Override>& overrides,
                         const std::string& digest);

// The digest of everything in the configuration of a run's folder that decides its result
// (log::RunOpened::configuration).
absl::StatusOr<std::string> ConfigurationDigest(const Document& document,
                                                const std::vector<Override>& overrides);

}  // namespace macaw::cli
