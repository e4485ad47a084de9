#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/config/document.h"

namespace macaw::cli {

// Whether a key says only how one machine computes and serves a run (workers, ports, stores,
// trackers). `macaw bundle` leaves such keys out, and `macaw verify` ignores them in a bundle.
// Keys of [round], workers.backend and the like decide bits, so they are kept.
bool IsOfOneMachine(absl::string_view key);

// The configuration of a run without such keys, as TOML.
std::string PortableToml(const Document& document);

// Whether a key is one of the seeds that bundle.json lists.
bool IsSeed(absl::string_view key);

// The values of a document by key, tables resolved: "data.path".
std::map<std::string, Value> FlatValues(const Document& document);

// The files that the key's value names; words that are no files ("auto", "zero") are left out.
std::vector<std::string> FilesNamedBy(const std::string& key, const Value& value);

// Whether a bundle with the model has the file that this key names: first weights and modules.
bool IsPacked(absl::string_view key);

// Keys of the document with which a run executes code that comes with it: plug-ins, modules, an
// owner's program. Sorted.
std::vector<std::string> KeysThatRunCode(const std::map<std::string, Value>& values);

}  // namespace macaw::cli
