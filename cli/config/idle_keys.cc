#include "cli/config/idle_keys.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/config/toml.h"

namespace macaw::cli {
namespace {

bool IsNothing(const std::optional<Value>& value) {
  return !value.has_value() || value == Value{0.0} || value == Value{int64_t{0}} ||
         value == Value{false} || value == Value{std::string("none")};
}

// Also a number that changes nothing, such as cohort.over_selection = 1.
bool IsOff(const Field& field, const Config& config) {
  const std::optional<Value> value = field.get(config);
  if (IsNothing(value) || value == Value{std::string("constant")}) return true;
  return value->As<double>() != nullptr && value == field.get(Config());
}

// Whether the words name the key, and not a longer one that begins alike.
bool IsNamed(absl::string_view key, absl::string_view words) {
  for (size_t at = words.find(key); at != words.npos; at = words.find(key, at + 1)) {
    const size_t end = at + key.size();
    const char next = end < words.size() ? words[end] : ' ';
    if (!absl::ascii_isalnum(next) && next != '_' && next != '.') return true;
  }
  return false;
}

}  // namespace

std::string WhyIdle(const Field& field, const Config& config,
                    const algorithms::Registry& registry) {
  if (const settings::Need<Config>* need = settings::Missing(field.needs, config))
    return absl::StrCat("without ", need->words);
  // A default is in every effective file, whether the rule reads it or not. Fine-tuning before an
  // evaluation reads [local], whatever the rule, and l2_penalty is of the decay.
  const auto rule = registry.Find(config.run.algorithm.name);
  if (!rule.ok() || !settings::Contains((*rule)->ignores, field.key)) return "";
  const EvaluationConfig& evaluation = config.run.evaluation;
  if (evaluation.fine_tune.steps > 0) return "";
  if (evaluation.train && field.key == "local.weight_decay") return "";
  if (field.get(config) == field.get(Config())) return "";
  return absl::StrCat("with algorithm \"", config.run.algorithm.name, "\"");
}

std::map<std::string, std::string> IdleParameters(const Config& config,
                                                  const algorithms::Registry& registry) {
  std::map<std::string, std::string> idle;
  AlgorithmConfig algorithm = config.run.algorithm;
  const auto given = config.algorithm_tables.find(algorithm.name);
  const auto rule = registry.Find(algorithm.name);
  if (!rule.ok() || given == config.algorithm_tables.end()) return idle;
  algorithm.parameters = given->second;
  const absl::StatusOr<AlgorithmConfig> complete = registry.Complete(algorithm);
  if (!complete.ok()) return idle;
  for (const algorithms::ParameterSpec& spec : (*rule)->parameters) {
    const settings::Need<AlgorithmConfig>* need = settings::Missing(spec.needs, *complete);
    if (need == nullptr || !given->second.contains(spec.name)) continue;
    if (complete->parameters.at(spec.name) == spec.default_value) continue;
    idle[spec.name] = absl::StrCat("without ", need->words);
  }
  return idle;
}

bool IsSwitchedOff(const Field& field, const Config& config,
                   const std::vector<const Field*>& given) {
  const settings::Need<Config>* const need = settings::Missing(field.needs, config);
  if (need == nullptr) return true;  // the rule does not read it
  return std::ranges::any_of(given, [&](const Field* other) {
    return IsNamed(other->key, need->words) && IsOff(*other, config);
  });
}

bool AsksForNothing(const Field& field, const Config& config) {
  const std::optional<Value> value = field.get(config);
  const bool nothing = IsNothing(value) || value == Value{std::string("auto")};
  return nothing && value == field.get(Config());
}

std::string TextOf(const IdleKey& key) { return absl::StrCat(key.key, " has no effect ", key.why); }

}  // namespace macaw::cli
