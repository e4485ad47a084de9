#include "cli/results/compare.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/results/alike.h"
#include "cli/results/ending.h"
#include "cli/results/run_paths.h"
#include "cli/results/text.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Runs = std::vector<RunResult>;
using Metrics = std::vector<std::string>;
using Notes = std::vector<std::string>;
using Json = nlohmann::ordered_json;

constexpr char kAlgorithmKey[] = "algorithm.name";

std::vector<std::string> EqualSettings(const Runs& runs, const std::vector<std::string>& keys,
                                       const algorithms::Registry& registry) {
  std::vector<std::string> equal;
  const auto differs = [&](const std::string& key) { return std::ranges::count(keys, key) > 0; };
  if (!differs(kAlgorithmKey)) equal.push_back(absl::StrCat(kAlgorithmKey, " ", runs[0].algorithm));
  for (const auto& [key, value] : runs[0].settings) {
    if (!differs(key)) equal.push_back(absl::StrCat(key, " ", SettingOf(runs[0], key, registry)));
  }
  return equal;
}

// A value as JSON, as far as its text is JSON; null: its rule has no such key.
Json ValueOf(const RunResult& run, const std::string& key, const algorithms::Registry& registry) {
  const std::string text = SettingOf(run, key, registry);
  if (text.empty()) return nullptr;
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

// Why two runs with equal settings and seeds have other models.
std::string WhyOther(const RunResult& run, const RunResult& other) {
  if (run.data_digest != other.data_digest) return "not the same data";
  std::vector<std::string> interrupted;
  for (const RunResult* const one : {&run, &other}) {
    if (!one->done())
      interrupted.push_back(
          absl::StrCat(one->folder, " was interrupted after round ", one->rounds));
  }
  return absl::StrCat("not the same model: ", interrupted.empty()
                                                  ? "other machines or versions"
                                                  : absl::StrJoin(interrupted, ", and "));
}

// Whether the run is to be counted in the row that has `others`: not if it is one of them.
bool IsNew(const RunResult& run, const Runs& others, Notes& notes) {
  const auto copy = std::ranges::find_if(others, [&](const RunResult& other) {
    return other.seed == run.seed && other.model_digest == run.model_digest;
  });
  const auto other =
      copy != others.end() ? copy : std::ranges::find(others, run.seed, &RunResult::seed);
  if (other == others.end()) return true;
  const std::string both = absl::StrCat(run.folder, " and ", other->folder);
  if (copy != others.end()) {
    notes.push_back(absl::StrCat(both, " are the same run (seed ", run.seed, "): counted once."));
    return false;
  }
  notes.push_back(absl::StrCat(both, " have the same settings and seed (", run.seed, "), but ",
                               WhyOther(run, *other), ". Both are counted."));
  return true;
}

// The runs with equal settings, in the order of their first ones; in each by seed.
std::vector<Runs> Grouped(const Runs& runs, Notes& notes) {
  std::vector<Runs> groups;
  for (const RunResult& run : runs) {
    auto group = std::ranges::find_if(groups, [&](const Runs& other) {
      return other.front().algorithm == run.algorithm && other.front().settings == run.settings;
    });
    if (group == groups.end()) group = groups.insert(group, Runs());
    if (IsNew(run, *group, notes)) group->push_back(run);
  }
  for (Runs& group : groups) std::ranges::stable_sort(group, {}, &RunResult::seed);
  return groups;
}

absl::Status CheckMetrics(const Metrics& metrics, const Runs& runs) {
  std::set<std::string> known;
  for (const RunResult& run : runs) {
    const std::map<std::string, double> values = ValuesOf(run);
    for (const auto& [metric, value] : values) known.insert(metric);
    known.insert(run.undefined.begin(), run.undefined.end());
    // One that no run reached is no mistake; who made one is not told of all that there could be.
    for (const std::string& target : TargetsOf(values)) {
      if (std::ranges::find(metrics, target) != metrics.end()) known.insert(target);
    }
  }
  for (const std::string& metric : metrics)
    MACAW_RETURN_IF_ERROR(CheckKnownMetric(metric, {known.begin(), known.end()}));
  return absl::OkStatus();
}

// Adds what is chosen by, and of the metrics of test rows the values in the rounds that it chooses.
absl::Status Select(const std::string& select, const Runs& runs, Metrics& metrics) {
  std::set<std::string> known, reported;
  for (const RunResult& run : runs) {
    for (const auto& [metric, best] : run.bests) known.insert(metric);
    if (const auto best = run.bests.find(select); best != run.bests.end()) {
      for (const auto& [metric, value] : best->second.report) reported.insert(metric);
    }
  }
  if (absl::Status there = CheckKnownMetric(select, {known.begin(), known.end()}); !there.ok())
    return Annotate(there, "--select");
  Metrics selected = {"best_" + select};
  for (const std::string& metric : reported) selected.push_back(AtBest(metric, select));
  metrics.insert(metrics.begin(), selected.begin(), selected.end());
  return absl::OkStatus();
}

// Why no row is compared with the best one; "": one is.
std::string NotPairedText(const ResultTable& table, const std::string& metric) {
  const bool tested = std::ranges::any_of(table.rows, [](const TableRow& row) {
    return row.against_best.has_value() && row.against_best->p.has_value();
  });
  if (tested || table.has_equal_differences()) return "";  // a note of the table's says the latter
  return absl::StrCat(
      "--paired compared nothing by ", metric, ": ",
      table.rows.size() == 1 ? "all runs have the same settings, so there is one row."
      : table.several_seeds()
          ? "a row needs two or more seeds in common with the best one, and none has them."
          : "each row has one run, and it needs two or more seeds that rows share. macaw simulate "
            "--repeat N runs N.");
}

// Behind the name of a folder that has no result.
std::string WhyNoResult(const std::string& folder) {
  const std::string config = folder + "/config.toml";
  if (FileExists(config)) return NotEndedText(folder);
  std::string unreadable = WhyUnreadable(folder);
  if (const absl::Status why = MissingFile(config, ""); !absl::IsNotFound(why))
    unreadable = std::string(why.message());
  return unreadable.empty() ? " holds no run: it has no summary.json"
                            : absl::StrCat(" holds no run that can be read: ", unreadable);
}

}  // namespace

absl::StatusOr<RunsRead> ReadRuns(const std::vector<std::string>& paths) {
  MACAW_ASSIGN_OR_RETURN(ResultFolders found, FoldersWithResults(paths));
  RunsRead read{.left_out = std::move(found.left_out)};
  for (const std::string& folder : found.folders) {
    if (!HasEnded(folder)) {
      return absl::NotFoundError(absl::StrCat(folder, WhyNoResult(folder)));
    }
    MACAW_ASSIGN_OR_RETURN(RunResult run, ReadResult(folder));
    if (run.algorithm.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder,
                       "/summary.json does not name the run's algorithm and settings: "
                       "it was written by an older version; run it again"));
    }
    read.runs.push_back(std::move(run));
  }
  return read;
}

absl::StatusOr<ResultTable> Compare(std::vector<RunResult> runs, Metrics metrics,
                                    const algorithms::Registry& registry,
                                    const CompareChoice& choice) {
  if (runs.empty()) return absl::InvalidArgumentError("there is no run to compare");
  TellApart(runs);
  if (!choice.select.empty()) MACAW_RETURN_IF_ERROR(Select(choice.select, runs, metrics));
  if (!choice.paired.empty() && std::ranges::find(metrics, choice.paired) == metrics.end())
    metrics.push_back(choice.paired);
  MACAW_RETURN_IF_ERROR(CheckMetrics(metrics, runs));
  ResultTable table{.keys = DifferingKeys(runs),
                    .metrics = metrics.empty() ? UsualMetrics(runs) : std::move(metrics)};
  if (!choice.paired.empty()) {
    table.chosen = static_cast<size_t>(std::ranges::find(table.metrics, choice.paired) -
                                       table.metrics.begin());
    table.higher = HigherMetricIsBetter(choice.paired);
  }
  table.equal = EqualSettings(runs, table.keys, registry);
  for (const Runs& group : Grouped(runs, table.notes)) {
    TableRow& row = table.rows.emplace_back();
    for (const std::string& key : table.keys)
      row.settings.push_back(ValueOf(group.front(), key, registry));
    for (const RunResult& run : group) {
      row.rounds = std::max(row.rounds, run.rounds);
      const std::map<std::string, double> values = ValuesOf(run);
      row.runs.push_back({.seed = run.seed,
                          .folder = run.folder,
                          .values = values,
                          .accuracy = TargetAccuracyOf(run),
                          .has_clock = HasClock(values)});
    }
    for (std::string& note : NotesOn(group)) table.notes.push_back(std::move(note));
    for (const RunResult& run : group) {
      for (const std::string& metric : table.metrics) {
        if (run.undefined.contains(metric))
          table.notes.push_back(
              absl::StrCat(run.folder, ": ", metric, " was no number in the end."));
      }
    }
  }
  Summarise(table);
  if (choice.paired.empty()) return table;
  if (std::string note = NotPairedText(table, choice.paired); !note.empty())
    table.notes.push_back(std::move(note));
  return table;
}

std::vector<std::string> UsualMetrics(const std::vector<RunResult>& runs) {
  Metrics metrics;
  const auto add = [&](const std::string& metric) {
    const bool there = std::ranges::any_of(runs, [&](const RunResult& run) {
      return run.final.contains(metric) || run.undefined.contains(metric);
    });
    if (there && std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
  };
  for (const char* metric :
       {"test_accuracy", "test_loss", "clients_test_accuracy", "clients_test_loss"})
    add(metric);
  for (const RunResult& run : runs) {
    for (const auto& [metric, best] : run.bests) add(metric);
  }
  add("train_loss");
  return metrics;
}

std::vector<std::string> NotesOn(const std::vector<RunResult>& runs) {
  Notes notes;
  for (const RunResult& run : runs) {
    if (!run.done()) {
      notes.push_back(absl::StrCat(run.folder, " was interrupted after round ", run.rounds, "."));
    } else if (run.end == "stopped") {
      notes.push_back(absl::StrCat(run.folder, " was stopped after round ", run.rounds,
                                   run.reason.empty() ? "" : ": ", run.reason, "."));
    }
    for (const Drop& drop : DropsOf(run)) {
      notes.push_back(
          absl::StrFormat("%s: %s ended at %.4f, far under its best of %.4f (round %d).",
                          run.folder, drop.metric, drop.last, drop.best, drop.best_round));
    }
  }
  return notes;
}

absl::Status CheckKnownMetric(const std::string& metric, const std::vector<std::string>& known) {
  if (std::ranges::find(known, metric) != known.end()) return absl::OkStatus();
  const std::string meant = NearestWord(metric, known);
  return absl::InvalidArgumentError(
      absl::StrCat("no run has the metric \"", metric, "\"",
                   meant.empty() ? "." : absl::StrCat("; did you mean ", meant, "?"), " There are ",
                   absl::StrJoin(known, ", ")));
}

}  // namespace macaw::cli
