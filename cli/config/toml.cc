#include "cli/config/toml.h"

#include <toml++/toml.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// `file` is empty if all values have the same place.
Value Convert(const toml::node& node, const std::string& file, const Place& place) {
  Value value;
  value.place = file.empty() ? place : Place{absl::StrCat(file, ":", node.source().begin.line)};
  switch (node.type()) {
    case toml::node_type::boolean:
      value.data = **node.as_boolean();
      break;
    case toml::node_type::integer:
      value.data = int64_t{**node.as_integer()};
      break;
    case toml::node_type::floating_point:
      value.data = **node.as_floating_point();
      break;
    case toml::node_type::string:
      value.data = std::string(**node.as_string());
      break;
    case toml::node_type::array: {
      Array array;
      for (const toml::node& item : *node.as_array())
        array.push_back(Convert(item, file, value.place));
      value.data = std::move(array);
      break;
    }
    case toml::node_type::table: {
      Table table;
      for (const auto& [key, item] : *node.as_table()) {
        table.push_back({std::string(key.str()), Convert(item, file, value.place)});
      }
      value.data = std::move(table);
      break;
    }
    default:
      break;  // dates and times, which no key takes
  }
  return value;
}

}  // namespace

absl::StatusOr<Value> ParseToml(absl::string_view text, const std::string& name) {
  try {
    const toml::table document = toml::parse(std::string_view(text.data(), text.size()), name);
    return Convert(document, name, {});
  } catch (const toml::parse_error& error) {
    const std::string_view what = error.description();
    return absl::InvalidArgumentError(absl::StrCat(name, ":", error.source().begin.line, ": ",
                                                   absl::string_view(what.data(), what.size())));
  }
}

absl::StatusOr<Value> ParseTomlValue(absl::string_view text, const Place& place) {
  const std::string document = absl::StrCat("value = ", text);
  try {
    const toml::table parsed = toml::parse(document);
    if (parsed.size() == 1) return Convert(*parsed.get("value"), "", place);
  } catch (const toml::parse_error& error) {
    // A syntax error is reported only for what looks like a list, a table or a quoted string. "idx"
    // and "2.x" are words.
    const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
    if (!trimmed.empty() && absl::StrContains("[{\"'", trimmed[0])) {
      const std::string_view what = error.description();
      return absl::InvalidArgumentError(
          absl::StrCat(place.text, ": ", absl::string_view(what.data(), what.size())));
    }
  }
  return Value{std::string(text), place};
}

}  // namespace macaw::cli
