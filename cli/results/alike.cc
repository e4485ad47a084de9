#include "cli/results/alike.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/config.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Settings = std::map<std::string, std::string>;

constexpr size_t kShown = 8;  // digits of a digest

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

// The text of a setting, with what tells its file's contents apart behind it: JSON, too.
std::string WithDigest(const std::string& setting, const std::string& digest) {
  const Json value = Json::parse(setting, nullptr, /*allow_exceptions=*/false);
  const std::string name = value.is_string() ? value.get<std::string>() : setting;
  // Digests are of a file that others wrote: a part of one may end within a character.
  return Json(absl::StrCat(name, name.empty() ? "" : " ", "(", digest, ")"))
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

void NameInputs(std::vector<RunResult>& runs) {
  using Named = std::pair<std::string, std::string>;  // a key and its setting; "": it has none
  std::set<std::string> keys;
  for (const RunResult& run : runs) {
    for (const auto& [key, digest] : run.inputs) keys.insert(key);
  }
  const auto named = [](const RunResult& run, const std::string& key) {
    const auto found = run.settings.find(key);
    return Named(key, found != run.settings.end() ? found->second : "");
  };
  std::map<Named, std::set<std::string>> digests;
  for (const RunResult& run : runs) {
    for (const std::string& key : keys) {
      const Named name = named(run, key);
      const auto found = run.inputs.find(key);
      // Older summaries have no digests of files. What no setting names, a run without it lacks.
      if (found != run.inputs.end())
        digests[name].insert(found->second);
      else if (name.second.empty())
        digests[name].insert("");
    }
  }
  for (RunResult& run : runs) {
    for (const auto& [key, digest] : run.inputs) {
      const Named name = named(run, key);
      const std::set<std::string>& others = digests[name];
      if (others.size() < 2) continue;
      // A list of files has their digests one after another.
      const std::string shown = digest.substr(0, kShown);
      const bool tells = std::ranges::count_if(others, [&](const std::string& other) {
                           return other.starts_with(shown);
                         }) == 1;
      run.settings[key] = WithDigest(name.second, tells ? shown : digest);
    }
  }
}

}  // namespace

void TellApart(std::vector<RunResult>& runs) {
  NameInputs(runs);
  NameFixedSeeds(runs);
}

}  // namespace macaw::cli
