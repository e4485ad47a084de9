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

// One key of the configuration. The list of them is the only place that knows a key: the reader,
// the effective file and `macaw simulate --help-config` all follow it.
struct Field {
  std::string path;      // "local.lr"
  std::string help;      // one line: unit and effect
  std::string expected;  // "a number > 0": completes "local.lr must be …"
  bool is_path = false;  // a relative one starts at the folder of the file it was written in
  std::vector<std::string>
      choices;  // of a word, for "did you mean"; of a path, words that are none

  // Takes the value over, or returns false and leaves everything as it was: the value is not what
  // `expected` says.
  std::function<bool(Config&, const Value&)> set;
  // What to write into the effective file; nothing where the key is best left out (empty, or its
  // rival is in force).
  std::function<std::optional<Value>(const Config&)> get;
  std::function<void(Config&)> reset;          // back to the default
  std::function<bool(const Config&)> applies;  // while it holds, it is in the effective file
  std::string needs;  // what that takes, in words; to give the key without that is an error
};

// Every key but those of [algorithm.NAME], which the registry knows. In the order of the effective
// file.
std::vector<Field> AllFields();

// data.source where plug-ins bring sources of their own.
Field DataSourceField(const std::map<std::string, sdk::DataSource>& of_plugins);

// Two keys that say the same thing in different ways: one source gives one of them at most, and one
// that is given later (`--set`) takes the place of the other.
struct Rivals {
  std::string first, second;
};
std::vector<Rivals> AllRivals();

}  // namespace macaw::cli
