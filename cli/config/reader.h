#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/config/toml.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// A key given on the command line. They are applied in order, so the last one counts.
struct Override {
  std::string key;          // "local.lr"
  std::string value;        // TOML, or a bare word for a string
  std::string place;        // "--set local.lr=0.1", for messages
  std::string folder = {};  // where its relative paths start; "": the current folder
};

// "section.key=value" as `--set` takes it.
absl::StatusOr<Override> ParseOverride(const std::string& text);

// The text of a configuration, parsed. A process parses each text once and reads what it needs from
// here.
struct Document {
  std::string name;    // as messages name it: the file's path
  std::string folder;  // where its relative paths start
  Table content;
};
absl::StatusOr<Document> OpenDocument(const std::string& path);  // "": an empty one
absl::StatusOr<Document> ParseDocument(const std::string& text, const std::string& name,
                                       const std::string& folder);

// The value of `key` ("data.source") as the overrides and the document give it; null: neither does.
absl::StatusOr<std::optional<Value>> Lookup(const Document& document,
                                            const std::vector<Override>& overrides,
                                            const std::string& key);

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
