#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// A key given on the command line. They are applied in order, so the last one counts.
struct Override {
  std::string key;    // "local.lr"
  std::string value;  // TOML, or a bare word for a string
  std::string place;  // "--set local.lr=0.1", for messages
};

// "section.key=value" as `--set` takes it.
absl::StatusOr<Override> ParseOverride(const std::string& text);

// The built-ins and the plug-ins that a configuration names, in its `plugins` or in an override.
// Nothing else of the file is read.
absl::StatusOr<sdk::Catalogue> LoadCatalogue(const std::string& path,
                                             const std::vector<Override>& overrides);

// Reads and checks a whole configuration, except what depends on the data (resolve.h). Errors begin
// with "FILE:LINE: " or "--set …: ", and name the key, what is expected and what was found; for an
// unknown key also the one that was probably meant. Relative paths start at the file's folder;
// those of overrides start at the current folder.
absl::StatusOr<Config> ReadConfig(const std::string& path, const std::vector<Override>& overrides,
                                  const sdk::Catalogue& catalogue);

// Requires only [data] and [partition]; what else is given is checked, too.
absl::StatusOr<Config> ReadDataConfig(const std::string& path,
                                      const std::vector<Override>& overrides,
                                      const sdk::Catalogue& catalogue);

// Like ReadConfig, for a text as if it were a file `name` in `folder`.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name,
                                   const std::string& folder,
                                   const std::vector<Override>& overrides,
                                   const sdk::Catalogue& catalogue);

}  // namespace macaw::cli
