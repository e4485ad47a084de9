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

// Reads and checks a whole configuration, except what depends on the data (resolve.h). Errors begin
// with "FILE:LINE: " or "--set …: ", and name the key, what is expected and what was found; for an
// unknown key also the one that was probably meant. Relative paths start at the file's folder;
// those of overrides start at the current folder.
absl::StatusOr<Config> ReadConfig(const Document& document, const std::vector<Override>& overrides,
                                  const sdk::Catalogue& catalogue);

// A node's own configuration. Requires only data.source; what else is given is checked, too.
absl::StatusOr<Config> ReadNodeConfig(const Document& document,
                                      const std::vector<Override>& overrides,
                                      const sdk::Catalogue& catalogue);

}  // namespace macaw::cli
