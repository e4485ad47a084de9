#include "cli/results/alike.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/config.h"

namespace macaw::cli {
namespace {

using Settings = std::map<std::string, std::string>;

std::set<std::string> SeedKeys() {
  std::set<std::string> keys;
  for (const Field& field : AllFields()) {
    if (field.is_seed) keys.insert(field.key);
  }
  return keys;
}

// An algorithm and settings.
using Configuration = std::pair<std::string, Settings>;

// The settings of a run with this seed, where it is one of `other`, some of whose seeds are fixed.
std::optional<Settings> AsIn(const Settings& other, const RunResult& run,
                             const std::set<std::string>& seeds) {
  Settings named = run.settings;
  for (const auto& [key, value] : other) {
    if (seeds.contains(key) && value == absl::StrCat(run.seed)) named.emplace(key, value);
  }
  if (named.size() == run.settings.size() || named != other) return std::nullopt;
  return named;
}

// A run's summary leaves out a seed that equals run.seed, whether it follows that or is fixed. It
// is taken for fixed where a configuration with that seed fixed lacks a run with this run.seed.
void NameFixedSeeds(std::vector<RunResult>& runs) {
  const std::set<std::string> seeds = SeedKeys();
  std::set<Configuration> fixed;
  std::set<std::pair<Configuration, uint64_t>> there;  // with the runs' seeds
  for (const RunResult& run : runs) {
    const Configuration configuration(run.algorithm, run.settings);
    there.emplace(configuration, run.seed);
    if (std::ranges::any_of(run.settings,
                            [&](const auto& one) { return seeds.contains(one.first); }))
      fixed.insert(configuration);
  }
  for (RunResult& run : runs) {
    for (const auto& [algorithm, settings] : fixed) {
      if (algorithm != run.algorithm) continue;
      std::optional<Settings> named = AsIn(settings, run, seeds);
      if (!named.has_value() || !there.emplace(Configuration(algorithm, *named), run.seed).second)
        continue;
      run.settings = *std::move(named);
      break;
    }
  }
}

void NameInputs(std::vector<RunResult>& runs) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> digests;  // by key and name
  const auto name_of = [](const RunResult& run, const std::string& key) {
    const auto found = run.settings.find(key);
    return std::pair(key, found != run.settings.end() ? found->second : std::string());
  };
  for (const RunResult& run : runs) {
    for (const auto& [key, digest] : run.inputs) digests[name_of(run, key)].insert(digest);
  }
  for (RunResult& run : runs) {
    for (const auto& [key, digest] : run.inputs) {
      const auto name = name_of(run, key);
      if (name.second.size() < 2 || digests[name].size() < 2) continue;
      // Within the quotes of the JSON text.
      run.settings[key].insert(name.second.size() - 1,
                               absl::StrCat(" (", digest.substr(0, 8), ")"));
    }
  }
}

}  // namespace

void TellApart(std::vector<RunResult>& runs) {
  NameInputs(runs);
  NameFixedSeeds(runs);
}

}  // namespace macaw::cli
