#include "cli/sweep/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/config/key_error.h"
#include "cli/config/reader.h"
#include "cli/process/exit.h"
#include "cli/process/lock.h"
#include "cli/process/signals.h"
#include "cli/report/report.h"
#include "cli/simulate/progress.h"
#include "cli/sweep/folder.h"
#include "cli/sweep/halving.h"
#include "cli/sweep/jobs.h"
#include "cli/sweep/machine.h"
#include "cli/sweep/plan.h"
#include "cli/sweep/progress.h"
#include "cli/sweep/sweep_file.h"
#include "cli/sweep/table.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Results = std::map<std::string, JobResult>;

constexpr double kGigabyte = 1e9;
constexpr double kShareOfFree = 0.9;   // of the free memory, by default
constexpr size_t kMostInReport = 200;  // runs

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).lexically_normal().string();
}

JobLimits LimitsOf(const SweepSettings& settings, const PreparedSweep& sweep) {
  JobLimits limits;
  const uint32_t cores = settings.cores > 0 ? settings.cores : CoresHere();
  const auto runs = static_cast<uint32_t>(sweep.jobs.size());
  const uint32_t taken = sweep.gpu ? cores : sweep.processes * std::max(1u, sweep.slots);
  limits.jobs = settings.jobs > 0 ? settings.jobs : std::max(1u, cores / taken);
  limits.jobs = std::clamp(limits.jobs, 1u, std::max(1u, runs));
  // Where the configuration does not say how many slots a run has, they share the cores.
  if (sweep.slots == 0 && !sweep.gpu)
    limits.slots = std::max(1u, cores / (limits.jobs * sweep.processes));
  limits.memory =
      static_cast<uint64_t>(settings.memory > 0 ? settings.memory * kGigabyte
                                                : static_cast<double>(FreeMemory()) * kShareOfFree);
  return limits;
}

// Every run's name, seed and settings.
std::string JobsText(const PreparedSweep& sweep) {
  std::string text;
  for (const Job& job : sweep.jobs) {
    const Configuration& what = sweep.plan.configurations[job.configuration];
    absl::StrAppend(&text, job.name, "  ", SettingsText(sweep.plan, what), "\n");
  }
  return text;
}

// One sweep, from its file to its table.
class Story {
 public:
  explicit Story(const SweepOptions& options)
      : options_(options),
        progress_({.terminal = ::isatty(STDERR_FILENO) != 0,
                   .quiet = options.quiet || options.json,
                   .width = TerminalWidth},
                  SteadyClock(), &WriteToStandardError) {}

  absl::StatusOr<int> Tell(SignalFd& signals) {
    MACAW_RETURN_IF_ERROR(Read());
    if (options_.dry_run) {
      std::cout << JobsText(sweep_) << std::flush;
      Say("jobs", LimitsText());
      return kExitOk;
    }
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder().path()));
    MACAW_ASSIGN_OR_RETURN(const Fd lock, LockFolder(folder().path()));
    MACAW_RETURN_IF_ERROR(folder().Write(sweep_));
    if (options_.retry_failed) MACAW_RETURN_IF_ERROR(folder().ForgetFailed(plan()));
    MACAW_ASSIGN_OR_RETURN(results_, ReadResults(folder(), plan()));
    begun_ = true;
    Say("jobs", LimitsText());
    Say("sweep", folder().path());
    Emit({{"event", "begun"}, {"folder", Absolute(folder().path())}, {"runs", sweep_.jobs.size()}});
    for (size_t rung = 0; rung < plan().rung_count(); ++rung) {
      MACAW_ASSIGN_OR_RETURN(const bool all, RunRung(rung, signals));
      if (!all) return kExitInterrupted;
    }
    progress_.Finish();
    return Conclude();
  }

  void Error(const absl::Status& status, int code) {
    progress_.Finish();
    const KeyError about = KeyErrorOf(status);
    if (!options_.json) (void)Report(status);
    Emit({{"event", "error"},
          {"code", code},
          {"message", std::string(status.message())},
          {"place", about.place},
          {"key", about.key},
          {"meant", about.meant}});
  }

  void End(int code) {
    progress_.Finish();
    const bool goes_on = begun_ && (code == kExitInterrupted || code == kExitFailed) && !over_;
    if (goes_on && !options_.json) {
      const SweepTable table = MakeTable(plan(), results_);
      std::cerr << "go on with  macaw sweep " << options_.file << " --out " << folder().path()
                << " (" << table.done << " of " << table.runs << " runs are done)" << std::endl;
    }
    Emit({{"event", "end"},
          {"code", code},
          {"go_on", goes_on ? Absolute(folder().path()) : std::string()}});
  }

 private:
  const SweepFolder& folder() const { return *folder_; }
  const SweepPlan& plan() const { return sweep_.plan; }

  absl::Status Read() {
    MACAW_ASSIGN_OR_RETURN(SweepFile file, ReadSweepFile(options_.file));
    SweepSettings& settings = file.settings;
    settings.jobs = options_.jobs.value_or(settings.jobs);
    settings.cores = options_.cores.value_or(settings.cores);
    settings.memory = options_.memory.value_or(settings.memory);
    const std::string stem = std::filesystem::path(options_.file).stem().string();
    folder_.emplace(options_.out.empty() ? "sweeps/" + stem : options_.out);
    MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(file.base, {}));
    MACAW_ASSIGN_OR_RETURN(
        sweep_, Prepare(file, catalogue, [this](const Job& job) { return folder().Has(job); }));
    for (const std::string& note : sweep_.notes) Say("note", note);
    for (const std::string& warning : sweep_.warnings) Say("warning", warning);
    limits_ = LimitsOf(settings, sweep_);
    return absl::OkStatus();
  }

  std::string LimitsText() const {
    std::string text = absl::StrCat(Counted(sweep_.jobs.size(), "run"), " of ",
                                    Counted(plan().configurations.size(), "configuration"));
    if (!plan().rungs.empty())
      absl::StrAppend(&text, ", halving after ", absl::StrJoin(plan().rungs, ", "), " rounds");
    absl::StrAppend(&text, "; ", limits_.jobs, " at a time");
    if (limits_.slots > 0) absl::StrAppend(&text, ", ", Counted(limits_.slots, "slot"), " each");
    return absl::StrCat(
        text, absl::StrFormat(", %.1f GB in all", static_cast<double>(limits_.memory) / kGigabyte));
  }

  // Rounds that are left at most, in this rung and the later ones.
  uint64_t RoundsLeft(size_t rung, size_t open) const {
    const auto seeds = static_cast<uint64_t>(plan().seeds.size());
    if (plan().rungs.empty()) {
      uint64_t rounds = 0;
      for (const Job& job : sweep_.jobs) {
        if (IsOpen(job, rung)) rounds += plan().configurations[job.configuration].rounds;
      }
      return rounds;
    }
    const auto step = [&](size_t i) -> uint64_t {
      return plan().rungs[i] - (i == 0 ? 0 : plan().rungs[i - 1]);
    };
    uint64_t rounds = open * step(rung);
    for (size_t i = rung + 1; i < plan().rungs.size(); ++i)
      rounds += MostOf(plan(), i) * seeds * step(i);
    return rounds;
  }

  bool IsOpen(const Job& job, size_t rung) const {
    const JobResult& result = results_.at(job.name);
    const uint32_t rounds = plan().RoundsOf(plan().configurations[job.configuration], rung);
    return !result.failed && !result.rungs.contains(rounds);
  }

  // Returns false when a signal ended it.
  absl::StatusOr<bool> RunRung(size_t rung, SignalFd& signals) {
    const std::vector<size_t> taking_part = ConfigurationsOf(plan(), results_, rung);
    std::vector<Task> tasks;
    for (const Job& job : sweep_.jobs) {
      if (!std::ranges::binary_search(taking_part, job.configuration) || !IsOpen(job, rung))
        continue;
      tasks.push_back({.name = job.name,
                       .config_file = folder().JobFile(job.name),
                       .folder = folder().RunOf(job.name),
                       .rounds = plan().RoundsOf(plan().configurations[job.configuration], rung)});
    }
    if (rung > 0 && !tasks.empty()) {
      Say("rung", absl::StrCat("to round ", plan().rungs[rung], ": ", taking_part.size(), " of ",
                               Counted(plan().configurations.size(), "configuration")));
    }
    size_t open = tasks.size();
    Update(rung, open);
    const JobEvents events{
        .on_begin = [&](const Task& task) { progress_.Begin(task.name); },
        .on_round = [&](const Task& task, uint32_t round) { progress_.Round(task.name, round); },
        .on_end =
            [&](const Task& task, const absl::StatusOr<RunResult>& result) {
              --open;
              return Keep(task, result, rung, open);
            },
        .say =
            [&](const std::string& message) {
              if (!options_.json) progress_.Say(message);
              Emit({{"event", "message"}, {"text", message}});
            }};
    return RunJobs(tasks, limits_, signals, events);
  }

  absl::Status Keep(const Task& task, const absl::StatusOr<RunResult>& result, size_t rung,
                    size_t open) {
    JobResult& kept = results_.at(task.name);
    if (result.ok()) {
      kept.rungs[task.rounds] = ValuesOf(*result);
    } else {
      kept.failed = true;
      kept.why = std::string(result.status().message());
    }
    MACAW_RETURN_IF_ERROR(folder().WriteResult(task.name, kept));
    const SweepTable table = Update(rung, open);
    std::optional<double> value;
    if (result.ok()) {
      const auto found = kept.rungs[task.rounds].find(plan().metric);
      if (found != kept.rungs[task.rounds].end()) value = found->second;
    }
    progress_.End(task.name, absl::StrCat(task.name, "  ",
                                          value.has_value()
                                              ? absl::StrCat(plan().metric, " ", MetricText(*value))
                                              : "failed"));
    Emit({{"event", "run"},
          {"name", task.name},
          {"state", value.has_value() ? "done" : "failed"},
          {"rounds", task.rounds},
          {"value", value.has_value() ? Json(*value) : Json()},
          {"why", kept.failed ? Json(kept.why) : Json()},
          {"done", table.done},
          {"failed", table.failed},
          {"runs", table.runs},
          {"best",
           table.best.has_value() ? Json(plan().configurations[*table.best].name) : Json()}});
    return absl::OkStatus();
  }

  SweepTable Update(size_t rung, size_t open) {
    SweepTable table = MakeTable(plan(), results_);
    // Of a halving each run of each rung counts.
    size_t before = 0, all = 0;
    for (size_t i = 0; i < plan().rung_count(); ++i) {
      const size_t runs =
          (plan().rungs.empty() ? plan().configurations.size() : MostOf(plan(), i)) *
          plan().seeds.size();
      before += i <= rung ? runs : 0;
      all += runs;
    }
    progress_.Update(before - open, all, RoundsLeft(rung, open));
    if (table.best.has_value()) {
      progress_.Best(absl::StrCat(plan().metric, " ", MetricText(table.rows.front().estimate.mean),
                                  " (", plan().configurations[*table.best].name, ")"));
    }
    return table;
  }

  absl::StatusOr<int> Conclude() {
    over_ = true;
    const SweepTable table = MakeTable(plan(), results_);
    const std::string& path = folder().path();
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(path + "/table.csv", SweepTableCsv(plan(), table)));
    if (table.best.has_value()) {
      MACAW_RETURN_IF_ERROR(AtomicWriteFile(path + "/best.toml", BestToml(table)));
    }
    MACAW_RETURN_IF_ERROR(WriteReport(table));
    if (options_.json) {
      Json event = {{"event", "table"}};
      event.update(Json::parse(SweepTableJson(plan(), table, results_, folder())));
      Emit(event);
    } else {
      std::cout << SweepTableText(plan(), table, results_) << "\n"
                << absl::StrFormat("%-10s %s/: table.csv, report.html%s\n", "results", path,
                                   table.best.has_value() ? ", best.toml" : "")
                << std::flush;
    }
    if (table.best.has_value()) return kExitOk;
    return absl::AbortedError(
        absl::StrCat("none of the ", table.runs, " runs has a ", plan().metric,
                     ": the table says why they failed; --retry-failed tries them again"));
  }

  std::string BestToml(const SweepTable& table) const {
    const SweepTable::Row& row = table.rows.front();
    const auto job = std::ranges::find(sweep_.jobs, *table.best, &Job::configuration);
    return absl::StrCat(
        "# The best of ", Counted(plan().configurations.size(), "configuration"), ": ",
        SettingsText(plan(), plan().configurations[*table.best]), ".\n# ", plan().metric, " ",
        MetricText(row.estimate.mean), ", the mean over ", Counted(row.estimate.n, "seed"),
        " after ", row.rounds, " rounds.", ReportText(row),
        ChoosesByTestRows(plan().metric) ? " It is of test rows, which so choose and judge." : "",
        " `macaw simulate` runs this file.\n",
        absl::StrReplaceAll(job->config, {{absl::StrCat("-", job->name, "\""), "-best\""}}));
  }

  // " Then test_accuracy is 0.9402 ± 0.0021."
  std::string ReportText(const SweepTable::Row& row) const {
    std::string text;
    for (size_t i = 0; i < plan().report.size(); ++i) {
      if (row.report[i].n == 0) continue;
      absl::StrAppend(&text, text.empty() ? " Beside it: " : ", ", plan().report[i], " ",
                      NumberText(row.report[i]));
    }
    return text.empty() ? text : text + ".";
  }

  // The runs of the best configurations first.
  absl::Status WriteReport(const SweepTable& table) const {
    std::vector<std::string> runs;
    for (const SweepTable::Row& row : table.rows) {
      for (const uint64_t seed : plan().seeds) {
        const std::string run =
            folder().RunOf(JobName(plan().configurations[row.configuration], seed));
        if (runs.size() < kMostInReport && FileExists(run + "/metrics.jsonl")) runs.push_back(run);
      }
    }
    if (runs.empty()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const std::string data, ReportData(runs));
    return AtomicWriteFile(folder().path() + "/report.html", ReportPage(data));
  }

  void Say(const std::string& what, const std::string& text) {
    if (!options_.quiet && !options_.json) progress_.Say(absl::StrFormat("%-10s %s", what, text));
    Emit({{"event", "said"}, {"what", what}, {"text", text}});
  }

  void Emit(const Json& event) const {
    if (!options_.json) return;
    std::cout << event.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  }

  const SweepOptions& options_;
  SweepProgress progress_;
  std::optional<SweepFolder> folder_;
  PreparedSweep sweep_;
  JobLimits limits_;
  Results results_;
  bool begun_ = false, over_ = false;
};

// Another metric of the runs that are over.
absl::Status ChooseMetric(SweepPlan& plan, const Results& results, const std::string& metric) {
  std::vector<std::string> known;
  for (const auto& [name, result] : results) {
    for (const auto& [rounds, values] : result.rungs) {
      for (const auto& [other, value] : values) {
        if (std::ranges::find(known, other) == known.end()) known.push_back(other);
      }
    }
  }
  if (std::ranges::find(known, metric) == known.end()) {
    const std::string meant = NearestWord(metric, known);
    return absl::InvalidArgumentError(
        absl::StrCat("no run has the metric \"", metric, "\"",
                     meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                     " There are ", absl::StrJoin(known, ", ")));
  }
  plan.metric = metric;
  plan.higher = HigherMetricIsBetter(metric);
  return absl::OkStatus();
}

absl::Status Show(const SweepShowOptions& options) {
  const SweepFolder folder(options.folder);
  MACAW_ASSIGN_OR_RETURN(SweepPlan plan, folder.ReadPlan());
  MACAW_ASSIGN_OR_RETURN(const Results results, ReadResults(folder, plan));
  if (!options.metric.empty()) MACAW_RETURN_IF_ERROR(ChooseMetric(plan, results, options.metric));
  const SweepTable table = MakeTable(plan, results);
  if (options.json) {
    std::cout << SweepTableJson(plan, table, results, folder) << "\n";
    return absl::OkStatus();
  }
  std::cout << SweepTableText(plan, table, results);
  if (table.done + table.failed < table.runs) {
    // A sweep that goes on holds the lock.
    const bool running = !TryLockFile(options.folder + "/.lock").open();
    std::cout << table.done + table.failed << " of " << table.runs << " runs are over; "
              << (running ? "the sweep goes on"
                          : "the sweep is interrupted: the same command goes on")
              << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int Sweep(const SweepOptions& options) {
  absl::StatusOr<SignalFd> signals = SignalFd::Open();
  if (!signals.ok()) return Report(signals.status());
  Story story(options);
  const absl::StatusOr<int> told = story.Tell(*signals);
  int code = told.ok() ? *told : ExitCodeOf(told.status());
  if (training::IsMissingBackend(told.status())) code = kExitMissingBackend;
  if (!told.ok()) story.Error(told.status(), code);
  story.End(code);
  return code;
}

int ShowSweep(const SweepShowOptions& options) { return Report(Show(options)); }

}  // namespace macaw::cli
