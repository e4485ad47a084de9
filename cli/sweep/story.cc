#include "cli/sweep/story.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/process/exit.h"
#include "cli/process/signals.h"
#include "cli/report/report.h"
#include "cli/results/compare.h"
#include "cli/results/result.h"
#include "cli/results/table.h"
#include "cli/results/text.h"
#include "cli/simulate/progress.h"
#include "cli/sweep/halving.h"
#include "cli/sweep/jobs.h"
#include "cli/sweep/machine.h"
#include "cli/sweep/progress.h"
#include "cli/sweep/table.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/settings/section.h"
#include "core/shell.h"
#include "core/spelling.h"
#include "core/status.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using Results = std::map<std::string, JobResult>;
using State = TableRun::State;

constexpr double kGigabyte = 1e9;
constexpr double kShareOfFree = 0.9;   // of the free memory, by default
constexpr size_t kMostInReport = 200;  // runs

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

class Story {
 public:
  Story(SweepSource& source, SignalFd& signals)
      : source_(source),
        signals_(signals),
        progress_({.terminal = ::isatty(STDERR_FILENO) != 0,
                   .quiet = source.quiet || source.json,
                   .width = TerminalWidth},
                  SteadyClock(), &WriteToStandardError) {
    const auto say = [this](absl::string_view line) { progress_.Say(line); };
    output_ = OutputFor(source.json, {.quiet = source.quiet, .say = say, .message = say});
  }

  int Tell() {
    const absl::StatusOr<int> told = Run();
    progress_.Finish();
    int code = told.ok() ? *told : ExitCodeOf(told.status());
    if (training::IsMissingBackend(told.status())) code = kExitMissingBackend;
    if (!told.ok()) output_->Error(told.status(), code);
    const bool goes_on =
        held_.has_value() && !over_ && (code == kExitInterrupted || code == kExitFailed);
    std::string again;
    if (goes_on) {
      const ResultTable table = Table();
      again = absl::StrCat(source_.again, " (", table.Count(State::kDone), " of ", table.runs(),
                           " runs are done)");
    }
    output_->End(code, goes_on ? folder().path() : "", again);
    return code;
  }

 private:
  const SweepFolder& folder() const { return held_->folder; }
  const SweepPlan& plan() const { return sweep_.plan; }
  ResultTable Table() const { return MakeTable(plan(), results_, folder()); }

  absl::StatusOr<int> Run() {
    MACAW_ASSIGN_OR_RETURN(const SweepFile file, source_.read());
    MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(file.base, file.set));
    MACAW_ASSIGN_OR_RETURN(sweep_, Prepare(file, catalogue, source_.is_known, *output_));
    for (const std::string& note : sweep_.notes) output_->Say("note", note);
    for (const std::string& warning : sweep_.warnings) output_->Say("warning", warning);
    limits_ = LimitsOf(file.settings, sweep_);
    limits_.arguments = source_.arguments;
    if (source_.dry_run) {
      if (!source_.json) std::cout << JobsText(sweep_) << std::flush;
      output_->Say("jobs", LimitsText());
      return kExitOk;
    }
    MACAW_ASSIGN_OR_RETURN(HeldSweep held, source_.open(sweep_));
    MACAW_RETURN_IF_ERROR(held.folder.Write(sweep_));
    if (source_.retry_failed) MACAW_RETURN_IF_ERROR(held.folder.ForgetFailed(plan()));
    MACAW_ASSIGN_OR_RETURN(results_, ReadResults(held.folder, plan()));
    held_.emplace(std::move(held));
    MACAW_RETURN_IF_ERROR(NoteLeftOut());
    OpenRemoved();
    output_->Say("jobs", LimitsText());
    output_->Say("sweep", folder().path());
    output_->Event({{"event", "begun"},
                    {"folder", AbsolutePath(folder().path())},
                    {"runs", sweep_.jobs.size()}});
    MACAW_RETURN_IF_ERROR(source_.on_change(sweep_, Table()));
    for (size_t rung = 0; rung < plan().rung_count(); ++rung) {
      MACAW_ASSIGN_OR_RETURN(const bool all, RunRung(rung));
      if (!all) return kExitInterrupted;
    }
    progress_.Finish();
    return Conclude();
  }

  absl::Status NoteLeftOut() {
    MACAW_ASSIGN_OR_RETURN(const size_t count, folder().CountLeftOut());
    if (count == 0) return absl::OkStatus();
    output_->Say("note",
                 absl::StrCat(Counted(count, "finished configuration"), " of ", folder().path(),
                              count == 1 ? " is" : " are",
                              " not in the sweep any more: table and best.toml are without ",
                              count == 1 ? "it" : "them", ", and the runs stay there."));
    return absl::OkStatus();
  }

  // A run whose folder was removed is made again.
  void OpenRemoved() {
    for (auto& [name, result] : results_) {
      if (!FileExists(folder().RunOf(plan(), name))) result.rungs.clear();
    }
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
    // Baselines begin in the last rung, with the first round.
    const size_t last = plan().rungs.size() - 1;
    for (const Job& job : sweep_.jobs) {
      if (plan().configurations[job.configuration].baseline && IsOpen(job, last))
        rounds += plan().rungs[last] - step(last);
    }
    return rounds;
  }

  bool IsOpen(const Job& job, size_t rung) const {
    const JobResult& result = results_.at(job.name);
    const uint32_t rounds = plan().RoundsOf(plan().configurations[job.configuration], rung);
    return !result.failed && !result.rungs.contains(rounds);
  }

  // Returns false when a signal ended it.
  absl::StatusOr<bool> RunRung(size_t rung) {
    const std::vector<size_t> taking_part = ConfigurationsOf(plan(), results_, rung);
    std::vector<Task> tasks;
    for (const Job& job : sweep_.jobs) {
      if (!std::ranges::binary_search(taking_part, job.configuration) || !IsOpen(job, rung))
        continue;
      const Configuration& configuration = plan().configurations[job.configuration];
      tasks.push_back({.name = job.name,
                       .config_file = folder().JobFile(job.name),
                       .folder = folder().RunOf(plan(), job.name),
                       .seed = job.seed,
                       .rounds = plan().RoundsOf(configuration, rung),
                       .from = rung > 0 && !configuration.baseline ? plan().rungs[rung - 1] : 0,
                       .goes_on = rung + 1 < plan().rung_count()});
    }
    if (rung > 0 && !tasks.empty()) {
      const auto baselines = static_cast<size_t>(std::ranges::count_if(
          taking_part, [&](size_t i) { return plan().configurations[i].baseline; }));
      output_->Say(
          "rung",
          absl::StrCat(
              "to round ", plan().rungs[rung], ": ", taking_part.size() - baselines, " of ",
              Counted(plan().candidates(), "configuration"),
              baselines == 0 ? "" : absl::StrCat(", and ", Counted(baselines, "baseline"))));
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
        .on_message =
            [&](const Task& task, const std::string& message) {
              if (plan().configurations.size() == 1)
                output_->Message(absl::StrCat(task.name, ": ", message));
            },
        .say = [&](const std::string& message) { output_->Message(message); }};
    return RunJobs(tasks, limits_, signals_, events);
  }

  absl::Status Keep(const Task& task, const absl::StatusOr<RunResult>& result, size_t rung,
                    size_t open) {
    JobResult& kept = results_.at(task.name);
    if (result.ok()) {
      kept.rungs[task.rounds] = ValuesOf(*result);
      kept.accuracy = TargetAccuracyOf(*result);
    } else {
      kept.failed = true;
      kept.why = std::string(result.status().message());
    }
    MACAW_RETURN_IF_ERROR(folder().WriteResult(task.name, kept));
    const ResultTable table = Update(rung, open);
    MACAW_RETURN_IF_ERROR(source_.on_change(sweep_, table));
    std::optional<double> value;
    if (result.ok()) {
      const auto found = kept.rungs[task.rounds].find(plan().metric);
      if (found != kept.rungs[task.rounds].end()) value = found->second;
    }
    const bool missed = result.ok() && !value.has_value() &&
                        settings::Contains(TargetsOf(kept.rungs[task.rounds]), plan().metric);
    const std::string what = value.has_value()
                                 ? absl::StrCat(plan().metric, " ", MetricText(*value))
                             : missed ? absl::StrCat(plan().metric, " not reached")
                                      : "failed";
    progress_.End(task.name, absl::StrCat(task.name, "  ", what));
    output_->Event(
        {{"event", "run"},
         {"name", task.name},
         {"state", value.has_value() || missed ? "done" : "failed"},
         {"rounds", task.rounds},
         {"value", value.has_value() ? Json(*value) : Json()},
         {"why", kept.failed ? Json(kept.why) : Json()},
         {"done", table.Count(State::kDone)},
         {"failed", table.Count(State::kFailed)},
         {"runs", table.runs()},
         {"best", table.best.has_value() ? Json(table.rows[*table.best].name) : Json()}});
    return absl::OkStatus();
  }

  ResultTable Update(size_t rung, size_t open) {
    ResultTable table = Table();
    // A halving counts each run of each rung.
    size_t before = 0, all = 0;
    for (size_t i = 0; i < plan().rung_count(); ++i) {
      const size_t runs =
          (plan().rungs.empty() ? plan().configurations.size() : MostOf(plan(), i)) *
          plan().seeds.size();
      before += i <= rung ? runs : 0;
      all += runs;
    }
    progress_.Update(before - open, all, RoundsLeft(rung, open));
    if (table.best.has_value() && table.rows.size() > 1) {
      const TableRow& best = table.rows[*table.best];
      progress_.Best(
          absl::StrCat(plan().metric, " ", MetricText(best.values[0].mean), " (", best.name, ")"));
    }
    return table;
  }

  absl::StatusOr<int> Conclude() {
    over_ = true;
    ResultTable table = Table();
    if (table.rows.size() == 1) {
      // A run's folder may have been removed.
      const auto read = ReadRuns(FoldersOfDone(table));
      for (std::string& note : NotesOn(read.value_or(RunsRead()).runs))
        table.notes.push_back(std::move(note));
    }
    const std::string& path = folder().path();
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(path + "/table.csv", TableCsv(table)));
    if (table.best.has_value()) {
      MACAW_RETURN_IF_ERROR(
          AtomicWriteFile(path + "/best.toml", BestToml(table, table.rows[*table.best])));
    } else {
      // That of another metric, or of runs that are gone.
      std::error_code ignored;
      std::filesystem::remove(path + "/best.toml", ignored);
    }
    MACAW_RETURN_IF_ERROR(WriteReport(table));
    if (source_.json) {
      Json event = {{"event", "table"}};
      event.update(Json::parse(TableJson(table)));
      output_->Event(event);
    } else {
      std::cout << TableText(table) << "\n"
                << absl::StrFormat("%-10s %s/: table.csv, report.html%s\n", "results", path,
                                   table.best.has_value() ? ", best.toml" : "")
                << std::flush;
    }
    if (!table.best.has_value()) return NothingIsBest(table);
    return source_.every_run_counts && table.Count(State::kFailed) > 0 ? kExitFailed : kExitOk;
  }

  absl::Status NothingIsBest(const ResultTable& table) const {
    size_t runs = 0, done = 0;
    for (const TableRow& row : table.rows) {
      if (row.baseline) continue;
      runs += row.runs.size();
      done += static_cast<size_t>(std::ranges::count(row.runs, State::kDone, &TableRun::state));
    }
    if (done > 0 && IsTarget(plan().metric)) {
      return absl::AbortedError(absl::StrCat(
          "no configuration has a ", plan().metric,
          ", since no run of theirs reached that accuracy, so none is the best; another metric in "
          "the sweep file and the same command choose among the runs that are there, and macaw "
          "sweep show ",
          ForShell(folder().path()), " --metric M shows them"));
    }
    return absl::AbortedError(absl::StrCat(
        "none of the ", runs, " runs ", runs < table.runs() ? "beside the baselines " : "",
        "has a ", plan().metric, ": the table says why they failed; ", source_.retry));
  }

  static std::vector<std::string> FoldersOfDone(const ResultTable& table) {
    std::vector<std::string> folders;
    for (const TableRow& row : table.rows) {
      for (const TableRun& run : row.runs) {
        if (run.state == State::kDone) folders.push_back(run.folder);
      }
    }
    return folders;
  }

  std::string BestToml(const ResultTable& table, const TableRow& row) const {
    const size_t configuration = plan().IndexOf(row.name);
    const auto job = std::ranges::find(sweep_.jobs, configuration, &Job::configuration);
    return absl::StrCat(
        "# The best of ", Counted(plan().candidates(), "configuration"), ": ",
        SettingsText(plan(), plan().configurations[configuration]), ".\n# ", plan().metric, " ",
        MetricText(row.values[0].mean), ", the mean over ", Counted(row.values[0].n, "seed"),
        " after ", row.rounds, " rounds.", ReportText(table, row),
        ChoosesByTestRows(plan().metric) ? " It is of test rows, which so choose and judge." : "",
        " `macaw simulate` runs this file.\n",
        absl::StrReplaceAll(job->config, {{absl::StrCat("-", job->name, "\""), "-best\""}}));
  }

  // " Then test_accuracy is 0.9402 ± 0.0021."
  std::string ReportText(const ResultTable& table, const TableRow& row) const {
    std::string text;
    for (size_t i = 1; i < table.metrics.size(); ++i) {
      if (row.values[i].n == 0 || !settings::Contains(plan().report, table.metrics[i])) continue;
      absl::StrAppend(&text, text.empty() ? " Beside it: " : ", ", table.metrics[i], " ",
                      NumberText(row.values[i]));
    }
    return text.empty() ? text : text + ".";
  }

  // The runs of the best configurations first.
  absl::Status WriteReport(const ResultTable& table) const {
    std::vector<std::string> runs;
    for (const TableRow& row : table.rows) {
      for (const TableRun& run : row.runs) {
        if (runs.size() < kMostInReport && FileExists(run.folder + "/metrics.jsonl"))
          runs.push_back(run.folder);
      }
    }
    if (runs.empty()) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const std::string data, ReportData(runs));
    return AtomicWriteFile(folder().path() + "/report.html", ReportPage(data));
  }

  SweepSource& source_;
  SignalFd& signals_;
  SweepProgress progress_;
  std::unique_ptr<Output> output_;
  std::optional<HeldSweep> held_;
  PreparedSweep sweep_;
  JobLimits limits_;
  Results results_;
  bool over_ = false;
};

}  // namespace

int RunSweep(SweepSource source) {
  absl::StatusOr<SignalFd> signals = SignalFd::Open();
  if (!signals.ok()) return Report(signals.status());
  return Story(source, *signals).Tell();
}

}  // namespace macaw::cli
