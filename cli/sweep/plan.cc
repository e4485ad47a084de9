#include "cli/sweep/plan.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigurationsJson(const std::vector<Configuration>& configurations) {
  Json all = Json::array();
  for (const Configuration& configuration : configurations) {
    all.push_back({{"name", configuration.name},
                   {"values", configuration.values},
                   {"rounds", configuration.rounds},
                   {"settings", configuration.settings},
                   {"inputs", configuration.inputs}});
    if (configuration.baseline) all.back()["baseline"] = true;
  }
  return all;
}

std::vector<Configuration> ConfigurationsIn(const Json& json) {
  std::vector<Configuration> configurations;
  for (const Json& entry : json) {
    Configuration& configuration = configurations.emplace_back();
    configuration.name = entry.at("name").get<std::string>();
    configuration.values = entry.at("values").get<std::vector<Json>>();
    configuration.rounds = entry.at("rounds").get<uint32_t>();
    configuration.settings = entry.value("settings", Json());  // older sweeps have none
    configuration.inputs = entry.value("inputs", Json());      // likewise
    configuration.baseline = entry.value("baseline", false);   // likewise
  }
  return configurations;
}

}  // namespace

void DropConstantKeys(SweepPlan& plan) {
  for (size_t key = plan.keys.size(); key-- > 0;) {
    const auto same = [&](const Configuration& configuration) {
      return configuration.values[key] == plan.configurations.front().values[key];
    };
    if (plan.configurations.size() < 2 || !std::ranges::all_of(plan.configurations, same)) continue;
    const auto at = static_cast<std::ptrdiff_t>(key);
    plan.keys.erase(plan.keys.begin() + at);
    for (Configuration& configuration : plan.configurations)
      configuration.values.erase(configuration.values.begin() + at);
  }
}

std::string JobName(const Configuration& configuration, uint64_t seed) {
  return absl::StrCat(configuration.name, configuration.name.empty() ? "" : "-", "seed", seed);
}

size_t SweepPlan::IndexOf(const std::string& name) const {
  return static_cast<size_t>(std::ranges::find(configurations, name, &Configuration::name) -
                             configurations.begin());
}

size_t SweepPlan::candidates() const {
  return static_cast<size_t>(std::ranges::count(configurations, false, &Configuration::baseline));
}

std::string JsonOf(const SweepPlan& plan) {
  Json json = {{"metric", plan.metric}, {"mode", plan.higher ? "max" : "min"},
               {"keys", plan.keys},     {"seeds", plan.seeds},
               {"rungs", plan.rungs},   {"factor", plan.factor},
               {"report", plan.report}};
  if (plan.runs != SweepPlan().runs) json["runs"] = plan.runs;
  json["configurations"] = ConfigurationsJson(plan.configurations);
  if (!plan.earlier.empty()) json["earlier"] = ConfigurationsJson(plan.earlier);
  return json.dump(1) + "\n";
}

absl::StatusOr<SweepPlan> ParsePlan(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    SweepPlan plan;
    plan.metric = json.at("metric").get<std::string>();
    plan.higher = json.at("mode") == "max";
    plan.keys = json.at("keys").get<std::vector<std::string>>();
    plan.seeds = json.at("seeds").get<std::vector<uint64_t>>();
    plan.rungs = json.at("rungs").get<std::vector<uint32_t>>();
    plan.factor = json.at("factor").get<uint32_t>();
    plan.report = json.value("report", std::vector<std::string>());  // older sweeps have none
    plan.runs = json.value("runs", plan.runs);
    plan.configurations = ConfigurationsIn(json.at("configurations"));
    plan.earlier = ConfigurationsIn(json.value("earlier", Json::array()));
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat(name, " is not the plan of a sweep: ", error.what(),
                                            "; restore or remove it"));
  }
}

}  // namespace macaw::cli
