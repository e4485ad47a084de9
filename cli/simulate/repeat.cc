#include "cli/simulate/repeat.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/process/lock.h"
#include "cli/simulate/run_folder.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string FileOf(const std::string& base) { return base + "-repeat.json"; }

std::string FolderAt(const std::string& base, uint64_t seed) {
  return absl::StrCat(base, "-seed", seed);
}

// Of those that begin the same experiment at one moment, one holds the name. The lock is beside the
// file of the experiment, because that is replaced with every change. An empty Fd: it is held.
absl::StatusOr<Fd> LockBase(const std::string& base) {
  const std::filesystem::path path(FileOf(base));
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty()) MACAW_RETURN_IF_ERROR(MakeDirectories(folder.string()));
  return TryLockName((folder / absl::StrCat(".", path.stem().string(), ".lock")).string());
}

absl::StatusOr<OrderedJson> ReadExperiment(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool whole = json.is_object() && json.contains("runs") && json["runs"].is_array();
  if (!whole) {
    return absl::DataLossError(
        absl::StrCat(file, " does not hold the runs of an experiment: rename or remove it"));
  }
  return json;
}

// "algorithm fedavg there, scaffold here; local.lr 0.1 there, 0.05 here"; "" where nothing differs.
std::string Difference(const OrderedJson& file, const ExperimentKey& key) {
  std::vector<std::string> parts;
  const auto compare = [&](const std::string& what, const OrderedJson& there,
                           const OrderedJson& here) {
    const auto text = [](const OrderedJson& value) {
      return value.is_null() ? "the default" : value.dump();
    };
    if (there != here)
      parts.push_back(absl::StrCat(what, " ", text(there), " there, ", text(here), " here"));
  };
  const auto member = [](const OrderedJson& object, const std::string& name) {
    return object.is_object() && object.contains(name) ? object[name] : OrderedJson();
  };
  compare("algorithm.name", member(file, "algorithm"), key.algorithm);
  const OrderedJson there = member(file, "settings");
  if (!there.is_object()) return "it does not say of which configuration";
  const OrderedJson here = OrderedJson::parse(key.settings);
  for (const auto& [name, value] : there.items()) compare(name, value, member(here, name));
  for (const auto& [name, value] : here.items()) {
    if (!there.contains(name)) compare(name, OrderedJson(), value);
  }
  return absl::StrJoin(parts, "; ");
}

absl::StatusOr<std::vector<std::string>> FoldersOfRepeat(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const OrderedJson json, ReadExperiment(file));
  std::vector<std::string> folders;
  for (const OrderedJson& run : json["runs"]) {
    if (!run.is_object() || !run.contains("folder") || !run["folder"].is_string()) continue;
    // The file and the runs may have been moved together.
    const std::filesystem::path name =
        std::filesystem::path(run["folder"].get<std::string>()).filename();
    folders.push_back((std::filesystem::path(file).parent_path() / name).string());
  }
  return folders;
}

absl::StatusOr<std::vector<std::string>> FoldersOfSweep(const std::string& sweep) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& run : std::filesystem::directory_iterator(sweep + "/runs", error)) {
    if (FileExists((run.path() / "config.toml").string())) folders.push_back(run.path().string());
  }
  if (folders.empty()) {
    return absl::NotFoundError(absl::StrCat(
        sweep, " holds a sweep of which no run has begun: there is none in ", sweep, "/runs"));
  }
  std::ranges::sort(folders);
  return folders;
}

}  // namespace

absl::StatusOr<Repeat> Repeat::Open(const std::string& wanted, bool fixed, bool force,
                                    ExperimentKey key, const std::vector<uint64_t>& seeds) {
  for (int number = 1;; ++number) {
    const std::string base = number == 1 ? wanted : absl::StrCat(wanted, "-", number);
    MACAW_ASSIGN_OR_RETURN(Fd lock, LockBase(base));
    std::optional<Repeat> repeat = Repeat(base, key);
    if (!force) {
      MACAW_ASSIGN_OR_RETURN(repeat, OpenAt(base, fixed, key, seeds));
    }
    if (repeat.has_value() && lock.open()) {
      repeat->lock_ = std::move(lock);
      return *std::move(repeat);
    }
    if (fixed || force) {
      return absl::FailedPreconditionError(
          absl::StrCat("another process is running the experiment of ", FileOf(base)));
    }
  }
}

absl::StatusOr<std::optional<Repeat>> Repeat::OpenAt(const std::string& base, bool fixed,
                                                     const ExperimentKey& key,
                                                     const std::vector<uint64_t>& seeds) {
  const std::string file = FileOf(base);
  if (!FileExists(file)) {
    const auto in_the_way =
        std::ranges::find_if(seeds, [&](uint64_t seed) { return IsTaken(FolderAt(base, seed)); });
    if (in_the_way == seeds.end()) return Repeat(base, key);
    if (!fixed) return std::nullopt;
    return absl::AlreadyExistsError(absl::StrCat(
        FolderAt(base, *in_the_way),
        " is there already, and not of such an experiment: name another --out, or replace it "
        "with --force"));
  }
  MACAW_ASSIGN_OR_RETURN(const OrderedJson json, ReadExperiment(file));
  const std::string difference = Difference(json, key);
  if (!difference.empty()) {
    if (!fixed) return std::nullopt;
    return absl::AlreadyExistsError(
        absl::StrCat(file, " is of another experiment (", difference,
                     "): name another --out, or replace it with --force"));
  }
  Repeat repeat(base, key);
  for (const OrderedJson& run : json["runs"]) {
    if (!run.is_object() || !run.contains("seed") || !run["seed"].is_number_unsigned()) continue;
    const auto seed = run["seed"].get<uint64_t>();
    // The run may have ended without an entry in this file, or may have been removed.
    absl::StatusOr<RunResult> result = ReadResult(FolderAt(base, seed));
    if (result.ok() && result->seed != seed) {
      return absl::DataLossError(absl::StrCat(FolderAt(base, seed), " holds a run with seed ",
                                              result->seed, ": rename or remove it"));
    }
    if (result.ok()) {
      repeat.runs_[seed] = *std::move(result);
    } else if (IsTaken(FolderAt(base, seed))) {
      repeat.runs_[seed] = RunResult{.folder = FolderAt(base, seed), .seed = seed};
    }
  }
  return repeat;
}

std::string Repeat::FolderOf(uint64_t seed) const { return FolderAt(base_, seed); }

bool Repeat::Done(uint64_t seed) const {
  const auto found = runs_.find(seed);
  return found != runs_.end() && found->second.done();
}

absl::Status Repeat::Begin(uint64_t seed) {
  runs_[seed] = RunResult{.folder = FolderOf(seed), .seed = seed};
  return Write();
}

absl::Status Repeat::Finish(RunResult result) {
  const uint64_t seed = result.seed;
  runs_[seed] = std::move(result);
  return Write();
}

std::vector<RunResult> Repeat::Results() const {
  std::vector<RunResult> results;
  for (const auto& [seed, run] : runs_) {
    if (run.done()) results.push_back(run);
  }
  return results;
}

absl::Status Repeat::Write() const {
  OrderedJson json = {{"name", key_.name},
                      {"algorithm", key_.algorithm},
                      {"settings", OrderedJson::parse(key_.settings)},
                      {"seeds", OrderedJson::array()},
                      {"runs", OrderedJson::array()},
                      {"metrics", OrderedJson::object()}};
  for (const auto& [seed, run] : runs_) {
    json["seeds"].push_back(seed);
    OrderedJson entry = {{"folder", run.folder}, {"seed", seed}};
    if (run.done()) {
      entry.update({{"end", run.end},
                    {"rounds", run.rounds},
                    {"seconds", run.seconds},
                    {"data_digest", run.data_digest},
                    {"model_digest", run.model_digest},
                    {"final", run.final}});
    }
    json["runs"].push_back(std::move(entry));
  }
  for (const Spread& spread : SpreadOf(Results())) {
    json["metrics"][spread.metric] = {
        {"mean", spread.mean},
        {"std", spread.std.has_value() ? OrderedJson(*spread.std) : OrderedJson()},
        {"values", spread.values}};
  }
  const std::filesystem::path folder = std::filesystem::path(file()).parent_path();
  if (!folder.empty()) MACAW_RETURN_IF_ERROR(MakeDirectories(folder.string()));
  return AtomicWriteFile(file(), json.dump(2) + "\n");
}

absl::StatusOr<std::vector<std::string>> RunFoldersOf(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return FoldersOfRepeat(path);
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (FileExists(folder + "/sweep.json")) return FoldersOfSweep(folder);
  return std::vector<std::string>{std::move(folder)};
}

}  // namespace macaw::cli
