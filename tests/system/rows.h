#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/system/simulation.h"

namespace macaw::testing_support {

// The rows of metrics.jsonl.
inline std::vector<nlohmann::json> RowsOf(const Simulation& run) {
  std::vector<nlohmann::json> rows;
  const std::string metrics = run.metrics();
  for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty()))
    rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// The arguments of a run of this configuration with --set for each of the settings.
inline std::vector<std::string> WithSettings(const std::string& config,
                                             const std::vector<std::string>& settings,
                                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {config};
  for (const std::string& setting : settings) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace macaw::testing_support
