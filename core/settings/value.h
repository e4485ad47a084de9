#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw::settings {

// Where a value was written, as it begins a message: "runs.toml:12" or "--set local.lr=fast".
struct Place {
  std::string text;
};

struct Value;
struct Entry;
using Array = std::vector<Value>;
using Table = std::vector<Entry>;  // in the order of the file

// A value of a setting, of the kinds that TOML has. std::monostate stands for dates and times,
// which no key takes.
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Table> data;
  Place place{};

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data);
  }
  friend bool operator==(const Value& a, const Value& b);
};

// A key of a table and its value. A std::pair would ask whether Value can be constructed while it
// is still being defined, which clang 14 refuses.
struct Entry {
  std::string first;
  Value second;
  friend bool operator==(const Entry&, const Entry&) = default;
};

inline bool operator==(const Value& a, const Value& b) { return a.data == b.data; }

// A value as shown in messages: `"fast"`, `3`, `[1, 2]`, `a table`.
std::string Describe(const Value& value);

// The value as TOML that parses back to the same value, bit for bit.
std::string ToToml(const Value& value);

// A table's key as TOML, quoted where that is required.
std::string TomlKey(absl::string_view key);

// A key that has a value: "local.lr" = 0.1.
struct Setting {
  std::string key;
  Value value;
};

}  // namespace macaw::settings
