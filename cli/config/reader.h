#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// A key given on the command line, in the order given: the last one counts.
struct Override {
  std::string key;    // "local.lr"
  std::string value;  // TOML, or a bare word for a string
  std::string place;  // "--set local.lr=0.1", for messages
};

// "section.key=value" as `--set` takes it.
absl::StatusOr<Override> ParseOverride(const std::string& text);

// The built-ins, and the plug-ins that a configuration names: its `plugins`, or those of an
// override. Nothing else of the file is looked at.
absl::StatusOr<sdk::Catalogue> LoadCatalogue(const std::string& path,
                                             const std::vector<Override>& overrides);

// Reads and checks a whole configuration. The only thing that is not checked is what the data must
// say first (resolve.h). Errors begin with "FILE:LINE: " or "--set …: ", name the key, what is
// expected and what was found; for an unknown key also the one that was probably meant. Relative
// paths start at the file's folder, those of overrides at the current one.
absl::StatusOr<Config> ReadConfig(const std::string& path, const std::vector<Override>& overrides,
                                  const sdk::Catalogue& catalogue);

// Only what [data] and [partition] say is needed; the rest is checked as far as it is there.
absl::StatusOr<Config> ReadDataConfig(const std::string& path,
                                      const std::vector<Override>& overrides,
                                      const sdk::Catalogue& catalogue);

// What ReadConfig does, for a text that stands in `folder` under the name `name`.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& name,
                                   const std::string& folder,
                                   const std::vector<Override>& overrides,
                                   const sdk::Catalogue& catalogue);

}  // namespace macaw::cli
