#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/config/document.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// The built-ins and the plug-ins that a configuration names, in its `plugins` or in an override.
// Nothing else of the document is read.
absl::StatusOr<sdk::Catalogue> LoadCatalogue(const Document& document,
                                             const std::vector<Override>& overrides);

// What becomes of a key that other keys leave without an effect (idle_keys.h). It is an error,
// unless the key had an effect that was taken from it: that of a document by the overrides, since a
// file may be shared by many commands, or that of an override by a later one for the same key as an
// earlier one. Such a key is left out. kLeaveOut: all are, for the configurations that a sweep
// makes of one file, and for the file of a run that goes on. Config::idle lists them.
enum class Idle { kRefuse, kLeaveOut };

// Reads and checks a whole configuration, except what depends on the data (resolve.h). Errors begin
// with "FILE:LINE: " or "--set …: ", and name the key, what is expected and what was found; for an
// unknown key also the one that was probably meant. Relative paths start at the file's folder;
// those of overrides start at the current folder.
absl::StatusOr<Config> ReadConfig(const Document& document, const std::vector<Override>& overrides,
                                  const sdk::Catalogue& catalogue, Idle idle = Idle::kRefuse);

// A node's own configuration. Requires only data.source; what else is given is checked, too, but
// for what a node's key needs of a run's.
absl::StatusOr<Config> ReadNodeConfig(const Document& document,
                                      const std::vector<Override>& overrides,
                                      const sdk::Catalogue& catalogue);

}  // namespace macaw::cli
