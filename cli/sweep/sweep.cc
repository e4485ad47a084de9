#include "cli/sweep/sweep.h"

#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/process/exit.h"
#include "cli/process/lock.h"
#include "cli/results/compare.h"
#include "cli/results/result.h"
#include "cli/results/table.h"
#include "cli/results/text.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/prepare.h"
#include "cli/sweep/story.h"
#include "cli/sweep/sweep_file.h"
#include "cli/sweep/table.h"
#include "core/files.h"
#include "core/settings/section.h"
#include "core/shell.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

std::string StemOf(const SweepOptions& options) {
  return std::filesystem::path(options.file).stem().string();
}

absl::StatusOr<SweepFile> FileOf(const SweepOptions& options) {
  const std::string stem = StemOf(options);
  if (options.out.empty() && (stem == "." || stem == "..")) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.file, ": no folder of a sweep is named \"", stem, "\": give it one with --out"));
  }
  MACAW_ASSIGN_OR_RETURN(SweepFile file, ReadSweepFile(options.file));
  SweepSettings& settings = file.settings;
  settings.jobs = options.jobs.value_or(settings.jobs);
  settings.cores = options.cores.value_or(settings.cores);
  settings.memory = options.memory.value_or(settings.memory);
  return file;
}

absl::StatusOr<HeldSweep> Hold(const SweepFolder& folder) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder.path()));
  MACAW_ASSIGN_OR_RETURN(Fd lock, LockFolder(folder.path()));
  return HeldSweep{folder, std::move(lock)};
}

// A metric of the runs that are over. The sweep's own keeps the sweep's mode.
absl::StatusOr<ShownMetric> ChooseMetric(const SweepPlan& plan,
                                         const std::map<std::string, JobResult>& results,
                                         const std::string& metric) {
  const ShownMetric own{.name = plan.metric, .higher = plan.higher};
  if (metric.empty() || metric == plan.metric) return own;
  std::vector<std::string> known;
  const auto add = [&](const std::string& other) {
    if (!settings::Contains(known, other)) known.push_back(other);
  };
  for (const auto& [name, result] : results) {
    for (const auto& [rounds, values] : result.rungs) {
      for (const auto& [other, value] : values) add(other);
      for (const std::string& target : TargetsOf(values)) {
        if (target == metric) add(target);
      }
    }
  }
  MACAW_RETURN_IF_ERROR(CheckKnownMetric(metric, known));
  return ShownMetric{.name = metric, .higher = HigherMetricIsBetter(metric)};
}

absl::Status Show(const SweepShowOptions& options) {
  const SweepFolder folder(options.folder);
  MACAW_ASSIGN_OR_RETURN(const SweepPlan plan, folder.ReadPlan());
  MACAW_ASSIGN_OR_RETURN(const auto results, ReadResults(folder, plan));
  MACAW_ASSIGN_OR_RETURN(const ShownMetric shown, ChooseMetric(plan, results, options.metric));
  const ResultTable table = MakeTable(plan, results, folder, shown);
  if (options.json) {
    std::cout << TableJson(table) << "\n";
    return absl::OkStatus();
  }
  std::cout << TableText(table);
  if (const size_t open = table.Count(TableRun::State::kOpen); open > 0) {
    // A sweep that goes on holds the lock.
    std::cout << table.runs() - open << " of " << table.runs() << " runs are over";
    switch (LookAtLock(options.folder)) {
      case FolderLock::kHeld:
        std::cout << "; the sweep goes on\n";
        break;
      case FolderLock::kFree:
        std::cout << "; the sweep is interrupted: the same command goes on\n";
        break;
      case FolderLock::kUnknown:
        std::cout << "\n" << std::flush;
        std::cerr << "note: " << UnknownLock(options.folder).message() << "\n";
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

int Sweep(const SweepOptions& options) {
  const SweepFolder folder(options.out.empty() ? "sweeps/" + StemOf(options) : options.out);
  return RunSweep({.read = [&] { return FileOf(options); },
                   .is_known = [&](const Job& job) { return folder.Has(job); },
                   .open = [&](PreparedSweep&) { return Hold(folder); },
                   .again = absl::StrCat("macaw sweep ", ForShell(options.file), " --out ",
                                         ForShell(folder.path())),
                   .retry = "--retry-failed tries them again",
                   .retry_failed = options.retry_failed,
                   .dry_run = options.dry_run,
                   .quiet = options.quiet,
                   .json = options.json});
}

int ShowSweep(const SweepShowOptions& options) { return Report(Show(options)); }

}  // namespace macaw::cli
