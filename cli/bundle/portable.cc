#include "cli/bundle/portable.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/config.h"

namespace macaw::cli {
namespace {

constexpr const char* kTablesOfOneMachine[] = {"server.",    "node.",      "accept.",
                                               "state.",     "track.",     "emulation.",
                                               "scheduler.", "run.wandb.", "run.mlflow."};
constexpr const char* kKeysOfOneMachine[] = {
    "run.out",         "run.track",        "workers.processes", "workers.slots",
    "workers.devices", "workers.slowdown", "workers.folder"};

// The keys of a table before the tables in it, as TOML wants them.
void AppendTable(const Table& table, const std::string& path, std::string& text) {
  std::string keys;
  for (const auto& [key, value] : table) {
    const std::string whole = path.empty() ? key : absl::StrCat(path, ".", key);
    if (value.As<Table>() != nullptr || IsOfOneMachine(whole)) continue;
    absl::StrAppend(&keys, settings::TomlKey(key), " = ", settings::ToToml(value), "\n");
  }
  if (!keys.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n");
    if (!path.empty()) absl::StrAppend(&text, "[", path, "]\n");
    absl::StrAppend(&text, keys);
  }
  for (const auto& [key, value] : table) {
    const Table* const inner = value.As<Table>();
    if (inner == nullptr) continue;
    AppendTable(
        *inner,
        path.empty() ? settings::TomlKey(key) : absl::StrCat(path, ".", settings::TomlKey(key)),
        text);
  }
}

void CollectValues(const Table& table, const std::string& prefix,
                   std::map<std::string, Value>& values) {
  for (const auto& [key, value] : table) {
    const std::string whole = absl::StrCat(prefix, key);
    if (const Table* const inner = value.As<Table>()) {
      CollectValues(*inner, whole + ".", values);
    } else {
      values[whole] = value;
    }
  }
}

}  // namespace

bool IsOfOneMachine(absl::string_view key) {
  return std::ranges::any_of(kTablesOfOneMachine,
                             [&](const char* table) { return absl::StartsWith(key, table); }) ||
         std::ranges::any_of(kKeysOfOneMachine, [&](const char* one) { return key == one; });
}

bool IsSeed(absl::string_view key) { return key == "seed" || absl::EndsWith(key, ".seed"); }

std::string PortableToml(const Document& document) {
  std::string text;
  AppendTable(document.content, "", text);
  return text;
}

std::map<std::string, Value> FlatValues(const Document& document) {
  std::map<std::string, Value> values;
  CollectValues(document.content, "", values);
  return values;
}

std::vector<std::string> FilesNamedBy(const std::string& key, const Value& value) {
  const std::vector<Field>& fields = AllFields();
  const auto field = std::ranges::find(fields, key, &Field::key);
  if (field == fields.end() || !field->is_path) return {};
  std::vector<std::string> files;
  const auto add = [&](const Value& one) {
    const std::string* const text = one.As<std::string>();
    if (text != nullptr && !text->empty() && !settings::Contains(field->choices, *text))
      files.push_back(*text);
  };
  if (const Array* const list = value.As<Array>()) {
    for (const Value& one : *list) add(one);
  } else {
    add(value);
  }
  return files;
}

bool IsPacked(absl::string_view key) { return key == "model.init" || key == "model.torchscript"; }

std::vector<std::string> KeysThatRunCode(const std::map<std::string, Value>& values) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values) {
    const bool program = key == "workers.command";
    const bool files = key == "plugins" || key == "model.torchscript" || key == "workers.backend";
    if (program || (files && !FilesNamedBy(key, value).empty())) keys.push_back(key);
  }
  return keys;
}

}  // namespace macaw::cli
