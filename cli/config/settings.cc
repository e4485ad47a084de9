#include "cli/config/settings.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/fields.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

// Keys that are not settings: a summary shows them elsewhere, they name files and folders, or they
// follow from the data or from a file whose name is a setting.
bool SaidElsewhere(const std::string& key) {
  static const std::set<std::string> kElsewhere = {
      "data.class_names",
      "plugins",
      "run.name",
      "run.out",
      "run.seed",
      "algorithm.name",
      "data.resident",
      "run.clients",
      "run.train_examples",
      "run.train_clients",
      "run.train_tokens",
      "model.input_shape",
      "model.script_digest",
      "model.tensors",
  };
  return kElsewhere.contains(key);
}

// A section's seed; it equals run.seed unless it is given.
std::optional<uint64_t> SeedAt(const std::string& key, const Config& config) {
  if (key == "data.seed") return config.data.seed;
  if (key == "partition.seed") return config.partition.seed;
  if (key == "model.seed") return config.run.model.seed;
  if (key == "cohort.seed") return config.run.cohort.seed;
  return std::nullopt;
}

Json ToJson(const Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, Array>) {
          Json array = Json::array();
          for (const Value& item : data) array.push_back(ToJson(item));
          return array;
        } else if constexpr (std::is_same_v<T, Table>) {
          Json table = Json::object();
          for (const auto& [key, item] : data) table[key] = ToJson(item);
          return table;
        } else {
          return data;
        }
      },
      value.data);
}

Json ToJson(const ParameterValue& value) {
  return std::visit([](const auto& plain) -> Json { return plain; }, value);
}

Json LastPart(const Value& path) {
  const std::string* text = path.As<std::string>();
  if (text == nullptr) return ToJson(path);
  std::filesystem::path file(*text);
  if (!file.has_filename()) file = file.parent_path();  // "rows/"
  return file.filename().string();
}

}  // namespace

bool OnlyComputes(absl::string_view key) {
  for (const char* section : {"workers.", "server.", "state.", "scheduler.", "emulation."}) {
    if (absl::StartsWith(key, section)) return true;
  }
  return key == "run.checkpoint_every" || key == "run.client_records";
}

std::string SettingsJson(const Config& config, const algorithms::Registry& registry) {
  Json settings = Json::object();
  const Config defaults;
  if (!config.run.plugins.empty()) settings["plugins"] = config.run.plugins;
  for (const Field& field : AllFields()) {
    const std::string& key = field.path;
    if (SaidElsewhere(key) || OnlyComputes(key)) continue;
    if (SeedAt(key, config) == config.run.seed) continue;
    if (field.applies && !field.applies(config)) continue;
    const std::optional<Value> value = field.get(config);
    if (!value.has_value()) continue;
    const Json json = field.is_path ? LastPart(*value) : ToJson(*value);
    const std::optional<Value> otherwise = field.get(defaults);
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
    if (field.path != key) continue;
    const std::optional<Value> value = field.get(defaults);
    return value.has_value() ? ToJson(*value).dump() : "";
  }
  return "";
}

}  // namespace macaw::cli
