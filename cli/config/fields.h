#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/config.h"
#include "cli/config/value.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// One key of the configuration. This list is the only place that knows the keys: the reader, the
// effective file and `macaw simulate --help-config` use it.
struct Field {
  std::string path;      // "local.lr"
  std::string help;      // one line: unit and effect
  std::string expected;  // "a number > 0"; completes "local.lr must be …"
  bool is_path = false;  // a relative path starts at the folder of the file that contains it
  std::vector<std::string>
      choices;  // of a word, for "did you mean"; of a path, words that are not paths

  // Sets the value. Returns false and changes nothing if the value is not what `expected` says.
  std::function<bool(Config&, const Value&)> set;
  // The value to write into the effective file; nothing if the key is left out (it is empty, or its
  // rival is used).
  std::function<std::optional<Value>(const Config&)> get;
  std::function<void(Config&)> reset;          // back to the default
  std::function<bool(const Config&)> applies;  // while true, it is in the effective file
  std::string needs;  // in words, when `applies` is true; giving the key otherwise is an error
};

// Every key, except those of [algorithm.NAME], which the registry knows. In the order of the
// effective file.
std::vector<Field> AllFields();

// The field data.source, with the sources of plug-ins.
Field DataSourceField(const std::map<std::string, sdk::DataSource>& of_plugins);

// Two keys for the same thing. A source of settings may give only one of them, and one that is
// given later (`--set`) replaces the other.
struct Rivals {
  std::string first, second;
};
std::vector<Rivals> AllRivals();

}  // namespace macaw::cli
