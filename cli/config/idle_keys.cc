#include "cli/config/idle_keys.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/config/toml.h"

namespace macaw::cli {

std::string WhyIdle(const Field& field, const Config& config,
                    const algorithms::Registry& registry) {
  if (const settings::Need<Config>* need = settings::Missing(field.needs, config))
    return absl::StrCat("without ", need->words);
  // A default is in every effective file, whether the rule reads it or not. Fine-tuning before an
  // evaluation reads [local], whatever the rule.
  const auto rule = registry.Find(config.run.algorithm.name);
  if (!rule.ok() || !settings::Contains((*rule)->ignores, field.key)) return "";
  if (config.run.evaluation.fine_tune.steps > 0) return "";
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

bool AsksForNothing(const Field& field, const Config& config) {
  const std::optional<Value> value = field.get(config);
  const bool nothing = !value.has_value() || value == Value{0.0} || value == Value{int64_t{0}} ||
                       value == Value{false} || value == Value{std::string("auto")} ||
                       value == Value{std::string("none")};
  return nothing && value == field.get(Config());
}

std::string TextOf(const IdleKey& key) { return absl::StrCat(key.key, " has no effect ", key.why); }

}  // namespace macaw::cli
