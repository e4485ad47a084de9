#include "cli/config/writer.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/config/toml.h"

namespace macaw::cli {
namespace {

// Collects lines by table; tables are in the order of their first line. A table's own keys come
// before its sub-tables.
class TomlText {
 public:
  void Add(const std::string& path, const std::string& line) {
    const size_t dot = path.rfind('.');
    const std::string table = dot == std::string::npos ? "" : path.substr(0, dot);
    auto found = std::find_if(tables_.begin(), tables_.end(),
                              [&](const auto& t) { return t.first == table; });
    if (found == tables_.end()) found = tables_.insert(tables_.end(), {table, ""});
    absl::StrAppend(&found->second, line, "\n");
  }
  std::string Finish() && {
    std::string text;
    for (const auto& [table, lines] : tables_) {
      absl::StrAppend(&text, text.empty() ? "" : "\n");
      if (!table.empty()) absl::StrAppend(&text, "[", table, "]\n");  // else keys at the top
      absl::StrAppend(&text, lines);
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> tables_;
};

std::string KeyOf(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// `needs`: what else must be so for the key to have an effect; "": nothing.
std::string HelpLine(const std::string& key, const std::string& value, const std::string& help,
                     const std::string& expected, const std::string& needs) {
  return absl::StrFormat("%-36s # %s (%s)%s", absl::StrCat(key, " = ", value), help, expected,
                         needs.empty() ? "" : absl::StrCat("; needs ", needs));
}

template <typename S>
void AddKeys(TomlText& text, const std::vector<settings::Field<S>>& fields, const S& section) {
  for (const settings::Field<S>& field : fields) {
    const std::optional<Value> value = field.Shown(section);
    if (value.has_value())
      text.Add(field.key, absl::StrCat(KeyOf(field.key), " = ", ToToml(*value)));
  }
}

void AddAlgorithms(TomlText& text, const Config& config) {
  for (const auto& [name, parameters] : config.algorithm_tables) {
    const std::string table = absl::StrCat("algorithm.", TomlKey(name));
    for (const auto& [key, value] : parameters) {
      text.Add(absl::StrCat(table, ".", key), absl::StrCat(TomlKey(key), " = ", ToToml(value)));
    }
  }
}

}  // namespace

std::string ToToml(const ParameterValue& value) { return ToToml(ToValue(value)); }

std::string RangeText(const algorithms::ParameterSpec& spec) {
  if (!spec.choices.empty()) return absl::StrJoin(spec.choices, " | ");
  std::string text = std::holds_alternative<bool>(spec.default_value)          ? "true or false"
                     : std::holds_alternative<std::string>(spec.default_value) ? "a string"
                     : std::holds_alternative<double>(spec.default_value)      ? "a number"
                                                                               : "an integer";
  if (spec.minimum.has_value())
    absl::StrAppend(&text, spec.open_minimum ? " > " : " >= ", *spec.minimum);
  if (spec.maximum.has_value())
    absl::StrAppend(&text, spec.minimum.has_value() ? ", <= " : " <= ", *spec.maximum);
  return text;
}

std::string EffectiveToml(const Config& config) {
  TomlText text;
  std::vector<Field> fields = AllFields();
  if (config.pooled_by_rule) {
    std::erase_if(fields,
                  [](const Field& field) { return field.key == "partition.train_together"; });
  }
  AddKeys(text, fields, config);
  AddAlgorithms(text, config);
  return std::move(text).Finish();
}

std::vector<Field> ServerFields() {
  std::set<std::string> keys;
  const settings::Section<RunPlan> plan = PlanSection();
  for (const auto& field : plan.fields()) keys.insert(field.key);
  const settings::Section<server::ServerConfig> own = server::ServerSection();
  for (const auto& field : own.fields()) keys.insert(field.key);
  std::vector<Field> kept;
  for (const Field& field : AllFields()) {
    if (keys.contains(field.key) && !field.is_path) kept.push_back(field);
  }
  return kept;
}

std::string ServerToml(const Config& config) {
  TomlText text;
  AddKeys(text, ServerFields(), config);
  AddAlgorithms(text, config);
  return std::move(text).Finish();
}

std::string NodeToml(const NodeConfig& node) {
  TomlText text;
  AddKeys(text, NodeSection().fields(), node);
  return std::move(text).Finish();
}

std::string ConfigHelp(const algorithms::Registry& registry) {
  TomlText text;
  const Config defaults;
  for (const Field& field : AllFields()) {
    // A key that is left out of files by default is shown with the default "".
    const bool hidden = field.hidden && field.hidden(defaults);
    const std::optional<Value> value = hidden ? std::nullopt : field.get(defaults);
    const std::string shown = value.has_value() ? ToToml(*value) : "…";
    text.Add(field.key, HelpLine(KeyOf(field.key), shown, field.help, field.expected,
                                 settings::NeedsText(field.needs)));
  }
  for (const algorithms::Description* algorithm : registry.All()) {
    for (const algorithms::ParameterSpec& spec : algorithm->parameters) {
      text.Add(absl::StrCat("algorithm.", algorithm->name, ".", spec.name),
               HelpLine(spec.name, ToToml(spec.default_value), spec.help, RangeText(spec),
                        settings::NeedsText(spec.needs)));
    }
  }
  return std::move(text).Finish();
}

}  // namespace macaw::cli
