#include "cli/config/describe.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "cli/config/json.h"
#include "cli/config/toml.h"
#include "cli/config/writer.h"
#include "data/partition.h"
#include "models/parse.h"
#include "models/spec.h"
#include "server/columns.h"
#include "server/statistics.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using settings::Role;

const char* NameOf(Role role) {
  switch (role) {
    case Role::kResult:
      return "result";
    case Role::kLength:
      return "length";
    case Role::kCompute:
      return "compute";
    case Role::kDerived:
      return "derived";
    case Role::kLabel:
      return "label";
  }
  return "";
}

bool Takes(const Field& field, const std::vector<Value>& values) {
  Config config;
  for (const Value& value : values) {
    if (field.set(config, value)) return true;
  }
  return false;
}

std::vector<Value> ListsOf(const std::vector<Value>& values) {
  std::vector<Value> lists;
  for (const Value& value : values) lists.push_back(Value{Array{value}});
  return lists;
}

Json KeyJson(const Field& field) {
  const Config defaults;
  Json key{{"key", field.key}, {"types", TypesOf(field)}};
  const bool hidden = field.hidden && field.hidden(defaults);
  const std::optional<Value> value = hidden ? std::nullopt : field.get(defaults);
  if (value.has_value()) key["default"] = ToJson(*value);
  key["help"] = field.help;
  key["expected"] = field.expected;
  key["choices"] = field.choices;
  key["instead_of"] = field.instead_of;
  key["needs"] = settings::NeedsText(field.needs);
  key["role"] = NameOf(field.role);
  key["path"] = field.is_path;
  key["seed"] = field.is_seed;
  return key;
}

const char* TypeOf(const ParameterValue& value) {
  return std::holds_alternative<bool>(value)      ? "boolean"
         : std::holds_alternative<int64_t>(value) ? "integer"
         : std::holds_alternative<double>(value)  ? "number"
                                                  : "string";
}

Json AlgorithmJson(const algorithms::Description& algorithm) {
  Json parameters = Json::array();
  for (const algorithms::ParameterSpec& spec : algorithm.parameters) {
    parameters.push_back({{"name", spec.name},
                          {"type", TypeOf(spec.default_value)},
                          {"default", ToJson(spec.default_value)},
                          {"help", spec.help},
                          {"expected", RangeText(spec)},
                          {"choices", spec.choices},
                          {"needs", settings::NeedsText(spec.needs)}});
  }
  return {{"name", algorithm.name},       {"summary", algorithm.summary},
          {"paper", algorithm.paper},     {"formula", algorithm.formula},
          {"remarks", algorithm.remarks}, {"parameters", std::move(parameters)}};
}

}  // namespace

std::vector<std::string> TypesOf(const Field& field) {
  const std::vector<Value> integers = {{int64_t{1}}, {int64_t{0}}, {int64_t{100}}};
  const std::vector<Value> reals = {{0.5}, {1.5}};
  // Anything, what a key of hours takes, and a separator.
  std::vector<Value> texts = {{std::string("a")}, {std::string("22:00-06:00")}, {std::string(";")}};
  for (const std::string& choice : field.choices) texts.push_back({choice});
  std::vector<std::string> types;
  const auto add = [&](const char* type, const std::vector<Value>& values) {
    if (!Takes(field, values)) return false;
    types.push_back(type);
    return true;
  };
  add("boolean", {{true}});
  if (!add("number", reals)) add("integer", integers);
  add("string", texts);
  if (!add("list of numbers", ListsOf(reals))) add("list of integers", ListsOf(integers));
  add("list of strings", ListsOf(texts));
  return types;
}

std::string DescribeJson(const sdk::Catalogue& catalogue, const std::string& version) {
  Json description{{"version", version}};
  for (const char* list :
       {"keys", "algorithms", "partitions", "models", "layers", "columns", "statistics"})
    description[list] = Json::array();
  std::vector<std::string> sources;
  for (const auto& [name, source] : catalogue.data_sources()) sources.push_back(name);
  for (const Field& field : FieldsWith(sources)) description["keys"].push_back(KeyJson(field));
  for (const algorithms::Description* algorithm : catalogue.algorithms().All())
    description["algorithms"].push_back(AlgorithmJson(*algorithm));
  for (const data::Choice& scheme : data::PartitionSchemes())
    description["partitions"].push_back({{"name", scheme.name}, {"help", scheme.description}});
  for (const models::NamedModel& model : models::NamedModels()) {
    description["models"].push_back(
        {{"name", model.name}, {"summary", model.summary}, {"layers", model.layers}});
  }
  for (const auto& [name, model] : catalogue.models()) {
    description["models"].push_back(
        {{"name", name}, {"summary", model.summary}, {"layers", Json::array()}});
  }
  for (const models::LayerWords& words : models::AllLayerWords())
    description["layers"].push_back({{"text", words.text}, {"help", words.help}});
  for (const server::ColumnHelp& column : server::DescribeColumns())
    description["columns"].push_back({{"columns", column.columns}, {"help", column.help}});
  for (const server::ClientStatistic& statistic : server::kClientStatistics)
    description["statistics"].push_back({{"name", statistic.name}, {"help", statistic.help}});
  return description.dump(1) + "\n";
}

}  // namespace macaw::cli
