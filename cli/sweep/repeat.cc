#include "cli/sweep/repeat.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/inputs.h"
#include "cli/config/reader.h"
#include "cli/process/lock.h"
#include "cli/results/result.h"
#include "cli/simulate/overrides.h"
#include "cli/simulate/run_folder.h"
#include "cli/sweep/folder.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kSuffix[] = "-repeat";

// Returns an error of the kind AlreadyExists if something else has the name of this repeat.
absl::Status CheckFree(const SweepFolder& folder, const PreparedSweep& sweep) {
  if (folder.HasPlan()) MACAW_RETURN_IF_ERROR(folder.CheckSame(sweep.plan));
  constexpr char kAdvice[] = ": name another --out, or replace it with --force";
  const std::string file = folder.path() + ".json";
  if (!folder.HasPlan() && FileExists(file)) {
    return absl::AlreadyExistsError(
        absl::StrCat(file,
                     " is of a repeat that an older version has begun; `macaw compare` and "
                     "`macaw report` read it",
                     kAdvice));
  }
  for (const Job& job : sweep.jobs) {
    const std::string run = folder.RunOf(sweep.plan, job.name);
    if (IsTaken(run) && !folder.HasBegun(job.name)) {
      return absl::AlreadyExistsError(
          absl::StrCat(run, " is there already, and not of such a repeat", kAdvice));
    }
  }
  return absl::OkStatus();
}

absl::Status RemoveRuns(const SweepFolder& folder, const PreparedSweep& sweep,
                        const std::vector<NamedInput>& inputs) {
  for (const Job& job : sweep.jobs)
    MACAW_RETURN_IF_ERROR(CheckInputsStay(folder.RunOf(sweep.plan, job.name), inputs));
  for (const Job& job : sweep.jobs) {
    const std::string run = folder.RunOf(sweep.plan, job.name);
    if (IsTaken(run)) MACAW_RETURN_IF_ERROR(MakeRunFolder(run, "", /*force=*/true).status());
  }
  for (const char* part :
       {"/sweep.json", "/jobs", "/results", "/table.csv", "/best.toml", "/report.html"}) {
    std::error_code error;
    fs::remove_all(folder.path() + part, error);
    if (error)
      return absl::ErrnoToStatus(error.value(),
                                 absl::StrCat("cannot remove ", folder.path(), part));
  }
  return absl::OkStatus();
}

// Runs of other seeds that are over stay in the table.
absl::Status AddEarlierSeeds(const SweepFolder& folder, SweepPlan& plan) {
  if (!folder.HasPlan()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const SweepPlan before, folder.ReadPlan());
  MACAW_ASSIGN_OR_RETURN(const auto results, ReadResults(folder, before));
  for (const uint64_t seed : before.seeds) {
    if (std::ranges::find(plan.seeds, seed) != plan.seeds.end()) continue;
    if (!results.at(JobName(plan.configurations.front(), seed)).rungs.empty())
      plan.seeds.push_back(seed);
  }
  std::ranges::sort(plan.seeds);
  return absl::OkStatus();
}

// The name that the repeat is to have.
struct Wanted {
  std::string base;
  bool fixed = false;  // the user gave it
  std::vector<NamedInput> inputs;
};

absl::StatusOr<SweepFile> RepeatFile(const SimulateOptions& options, Wanted& wanted) {
  SweepFile file;
  file.path = options.config;
  file.is_repeat = true;
  MACAW_ASSIGN_OR_RETURN(file.base, OpenDocument(options.config));
  MACAW_ASSIGN_OR_RETURN(file.set, OverridesOf(options, file.base));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(file.base, file.set));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(file.base, file.set, catalogue));
  wanted.inputs = InputsOf(config);
  wanted.base = options.out.empty() ? config.node.server.out : options.out;
  while (wanted.base.size() > 1 && wanted.base.back() == '/') wanted.base.pop_back();
  wanted.fixed = !wanted.base.empty();
  if (!wanted.fixed) wanted.base = "runs/" + config.run.name;
  for (uint64_t i = 0; i < *options.repeat; ++i) file.settings.seeds.push_back(config.run.seed + i);
  file.settings.jobs = options.jobs.value_or(0);
  return file;
}

}  // namespace

absl::StatusOr<HeldSweep> OpenRepeat(const std::string& wanted, bool fixed, bool force,
                                     PreparedSweep& sweep, const std::vector<NamedInput>& inputs) {
  for (int number = 1;; ++number) {
    const std::string base = number == 1 ? wanted : absl::StrCat(wanted, "-", number);
    const SweepFolder folder(base + kSuffix);
    sweep.plan.runs = absl::StrCat("../", fs::path(base).filename().string(), "-");
    const absl::Status is_free = force ? absl::OkStatus() : CheckFree(folder, sweep);
    if (absl::IsAlreadyExists(is_free) && !fixed) continue;
    MACAW_RETURN_IF_ERROR(is_free);
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder.path()));
    MACAW_ASSIGN_OR_RETURN(Fd lock, TryLockFolder(folder.path()));
    if (lock.open()) {
      if (force) MACAW_RETURN_IF_ERROR(RemoveRuns(folder, sweep, inputs));
      MACAW_RETURN_IF_ERROR(AddEarlierSeeds(folder, sweep.plan));
      return HeldSweep{folder, std::move(lock)};
    }
    if (fixed || force) {
      return absl::FailedPreconditionError(
          absl::StrCat("another process is running the experiment of ", folder.path()));
    }
  }
}

std::string RepeatJson(const SweepPlan& plan, const ResultTable& table) {
  Json settings = plan.configurations.front().settings;
  Json json = {{"algorithm", settings["algorithm.name"]},
               {"settings", std::move(settings)},
               {"seeds", plan.seeds},
               {"runs", Json::array()},
               {"metrics", Json::object()}};
  json["settings"].erase("algorithm.name");
  const TableRow& row = table.rows.front();
  for (const TableRun& run : row.runs) {
    Json entry = {{"folder", run.folder}, {"seed", run.seed}};
    const absl::StatusOr<RunResult> result = ReadResult(run.folder);
    if (result.ok() && result->done()) {
      entry.update({{"end", result->end},
                    {"rounds", result->rounds},
                    {"seconds", result->seconds},
                    {"data_digest", result->data_digest},
                    {"model_digest", result->model_digest},
                    {"final", result->final}});
    }
    json["runs"].push_back(std::move(entry));
  }
  for (size_t i = 0; i < table.metrics.size(); ++i) {
    if (row.values[i].n == 0) continue;
    Json& metric = json["metrics"][table.metrics[i]] = JsonOf(row.values[i]);
    for (const TableRun& run : row.runs) {
      const auto value = run.values.find(table.metrics[i]);
      if (value != run.values.end()) metric["values"].push_back(value->second);
    }
  }
  return json.dump(2) + "\n";
}

int Repeat(const SimulateOptions& options) {
  Wanted wanted;
  std::string file;
  return RunSweep({.read = [&] { return RepeatFile(options, wanted); },
                   .is_known = [](const Job&) { return false; },
                   .open = [&](PreparedSweep& sweep) -> absl::StatusOr<HeldSweep> {
                     MACAW_ASSIGN_OR_RETURN(
                         HeldSweep held, OpenRepeat(wanted.base, wanted.fixed, options.force, sweep,
                                                    wanted.inputs));
                     file = held.folder.path() + ".json";
                     return held;
                   },
                   .on_change =
                       [&](const PreparedSweep& sweep, const ResultTable& table) {
                         return AtomicWriteFile(file, RepeatJson(sweep.plan, table));
                       },
                   .again = "the same command",
                   .retry = "the same command tries them again",
                   .arguments = options.trace ? std::vector<std::string>{"--trace"}
                                              : std::vector<std::string>(),
                   .every_run_counts = true,
                   .retry_failed = true,
                   .dry_run = options.check,
                   .quiet = options.quiet,
                   .json = options.json});
}

}  // namespace macaw::cli
