#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/toml.h"

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
absl::StatusOr<std::vector<Override>> ParseOverrides(const std::vector<std::string>& texts);

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

}  // namespace macaw::cli
