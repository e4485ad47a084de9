#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// One configuration of a sweep; it runs once with each seed.
struct Configuration {
  std::string name;                            // "007"; "" in a repeat
  std::vector<nlohmann::ordered_json> values;  // of the sweep's keys; null: the key is not used
  uint32_t rounds = 0;                         // run.rounds
  nlohmann::ordered_json settings;             // what decides its results, by key, without seeds
  nlohmann::ordered_json inputs;               // digests of its files by key; null: not known
  // To compare the others with: never the best, and in a halving it runs once, for all rounds.
  bool baseline = false;
};

// What a sweep does, as it is kept in DIR/sweep.json.
struct SweepPlan {
  std::string metric;
  bool higher = true;  // more of the metric is better
  // What is shown of the runs beside the metric, by the names that ValuesOf has (result.h).
  std::vector<std::string> report;
  std::vector<std::string> keys;  // those that vary
  std::vector<uint64_t> seeds;
  std::vector<uint32_t> rungs;  // successive halving: rounds of each rung; empty: none
  uint32_t factor = 0;
  std::vector<Configuration> configurations;
  // Those of its folder that are not in the sweep any more. Only a plan that was read has them.
  std::vector<Configuration> earlier;
  std::string runs = "runs/";  // before the name of a job: its run, from the sweep's folder

  size_t IndexOf(const std::string& name) const;  // of the configuration with this name
  size_t candidates() const;                      // configurations that are no baselines
  size_t rung_count() const { return rungs.empty() ? 1 : rungs.size(); }
  uint32_t RoundsOf(const Configuration& configuration, size_t rung) const {
    return rungs.empty() ? configuration.rounds : rungs[rung];
  }
};
// A key with a single value needs no column.
void DropConstantKeys(SweepPlan& plan);
// "007-seed1"; of a configuration without a name "seed1"
std::string JobName(const Configuration& configuration, uint64_t seed);
std::string JsonOf(const SweepPlan& plan);
absl::StatusOr<SweepPlan> ParsePlan(const std::string& json, const std::string& name);

}  // namespace macaw::cli
