#include "cli/config/settings.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/json.h"
#include "cli/config/toml.h"
#include "data/options.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using settings::Role;

// The server's keys of [round] say which clients a round waits for, and how long. By that they
// decide the result, in virtual time and by the machine's clock. Their role is of a resume, which
// may change them.
bool ClosesRounds(const Field& field) {
  return field.role == Role::kCompute && absl::StartsWith(field.key, "round.");
}

// Whether a key decides what is trained or for how long. The summary shows the seed and the
// algorithm's name elsewhere.
bool IsSetting(const Field& field) {
  const bool decides =
      field.role == Role::kResult || field.role == Role::kLength || ClosesRounds(field);
  return decides && field.key != "run.seed" && field.key != "algorithm.name";
}

// The fields that `key` sets: itself, or those of the table that it names.
std::vector<const Field*> Under(const std::vector<Field>& fields, const std::string& key) {
  std::vector<const Field*> under;
  for (const Field& field : fields) {
    if (field.key == key || absl::StartsWith(field.key, key + ".")) under.push_back(&field);
  }
  return under;
}

// Where the rows lie. What a checkpoint was trained on is known by its digest, so files may move.
bool NamesData(const Field& field) {
  return field.is_path &&
         (absl::StartsWith(field.key, "data.") || absl::StartsWith(field.key, "partition."));
}

// In virtual time the configuration alone decides who counts in a round, so a run keeps that.
bool MayChange(const Field& field, const Config& config) {
  if (NamesData(field)) return true;
  if (ClosesRounds(field)) return !config.run.devices.on();
  return field.role == Role::kCompute || field.role == Role::kLength;
}

// What a key stands for where it is not given.
std::optional<Value> DefaultIn(const Config& config, const Field& field) {
  static const Config defaults;
  // A prepared file's own clients may keep their rows.
  if (field.key == "data.test_fraction" && config.node.data.source != "prepared")
    return Value{data::kDefaultTestFraction};
  return field.get(defaults);
}

OrderedJson LastPart(const Value& path) {
  const std::string* text = path.As<std::string>();
  if (text == nullptr) return ToJson(path);
  std::filesystem::path file(*text);
  if (!file.has_filename()) file = file.parent_path();  // "rows/"
  return file.filename().string();
}

}  // namespace

bool OnlyComputes(const std::string& key) {
  const std::vector<Field>& fields = AllFields();
  const std::vector<const Field*> under = Under(fields, key);
  return !under.empty() && std::ranges::all_of(under, [](const Field* field) {
    return field->role == Role::kCompute && !ClosesRounds(*field);
  });
}

bool IsKeptByAResume(const std::string& key, const Config& config) {
  if (absl::StartsWith(key, "algorithm.")) return true;
  const std::vector<Field>& fields = AllFields();
  return !std::ranges::all_of(Under(fields, key),
                              [&](const Field* field) { return MayChange(*field, config); });
}

std::vector<std::string> KeysThatMayChange(const Config& config) {
  std::vector<std::string> keys;
  const std::vector<Field>& fields = AllFields();
  for (const Field& field : fields) {
    if (!MayChange(field, config)) continue;
    const std::string table = field.key.substr(0, field.key.rfind('.'));
    const bool whole = std::ranges::all_of(
        Under(fields, table), [&](const Field* other) { return MayChange(*other, config); });
    std::string key = whole ? table + ".*" : field.key;
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}

std::string SettingsJson(const Config& config, const algorithms::Registry& registry) {
  OrderedJson settings = OrderedJson::object();
  if (!config.run.plugins.empty()) settings["plugins"] = config.run.plugins;
  for (const Field& field : AllFields()) {
    const std::string& key = field.key;
    const std::optional<Value> value = field.Shown(config);
    if (!IsSetting(field) || !value.has_value()) continue;
    if (field.is_seed && *value == Value{static_cast<int64_t>(config.run.seed)}) continue;
    const OrderedJson json = field.is_path ? LastPart(*value) : ToJson(*value);
    const std::optional<Value> otherwise = DefaultIn(config, field);
    if (otherwise.has_value() && ToJson(*otherwise) == json) continue;
    settings[key] = json;
  }
  const AlgorithmConfig& algorithm = config.run.algorithm;
  const auto description = registry.Find(algorithm.name);
  for (const auto& [name, value] : algorithm.parameters) {
    bool is_default = false;
    if (description.ok()) {
      for (const algorithms::ParameterSpec& spec : (*description)->parameters)
        is_default = is_default || (spec.name == name && spec.default_value == value);
    }
    if (!is_default)
      settings[absl::StrCat("algorithm.", algorithm.name, ".", name)] = ToJson(value);
  }
  return settings.dump();
}

std::vector<std::string> UnusedParameters(const Config& config) {
  std::vector<std::string> unused;
  for (const auto& [name, parameters] : config.algorithm_tables) {
    if (name == config.run.algorithm.name) continue;
    for (const auto& [parameter, value] : parameters)
      unused.push_back(absl::StrCat("algorithm.", name, ".", parameter));
  }
  return unused;
}

std::string DefaultOf(const std::string& key, const algorithms::Registry& registry) {
  const std::vector<std::string> parts = absl::StrSplit(key, '.');
  if (parts.size() == 3 && parts[0] == "algorithm") {
    const auto algorithm = registry.Find(parts[1]);
    if (!algorithm.ok()) return "";
    for (const algorithms::ParameterSpec& spec : (*algorithm)->parameters) {
      if (spec.name == parts[2]) return ToJson(spec.default_value).dump();
    }
    return "";
  }
  const Config defaults;
  for (const Field& field : AllFields()) {
    if (field.key != key || (field.hidden && field.hidden(defaults))) continue;
    if (field.is_seed && key != "run.seed") return absl::StrCat("\"", settings::kRunsSeed, "\"");
    const std::optional<Value> value = DefaultIn(defaults, field);
    return value.has_value() ? ToJson(*value).dump() : "";
  }
  return "";
}

}  // namespace macaw::cli
