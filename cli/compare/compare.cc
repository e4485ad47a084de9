#include "cli/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/compare/text.h"
#include "cli/simulate/repeat.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Runs = std::vector<RunResult>;
using Metrics = std::vector<std::string>;

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

Metrics UsualMetrics(const Runs& runs) {
  Metrics metrics;
  const auto add = [&](const std::string& metric) {
    const bool there =
        std::ranges::any_of(runs, [&](const RunResult& run) { return run.final.contains(metric); });
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

absl::Status CheckMetrics(const Metrics& metrics, const Runs& runs) {
  std::set<std::string> known;
  for (const RunResult& run : runs) {
    for (const auto& [metric, value] : ValuesOf(run)) known.insert(metric);
  }
  for (const std::string& metric : metrics) {
    if (known.contains(metric)) continue;
    const std::vector<std::string> words(known.begin(), known.end());
    const std::string meant = NearestWord(metric, words);
    return absl::InvalidArgumentError(
        absl::StrCat("no run has the metric \"", metric, "\"",
                     meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                     " There are ", absl::StrJoin(words, ", ")));
  }
  return absl::OkStatus();
}

// "-": its rule has no such key.
std::string SettingText(const RunResult& run, const std::string& key,
                        const algorithms::Registry& registry) {
  std::string text = SettingOf(run, key, registry);
  return text.empty() ? "-" : text;
}

// Adds the run to the row of its configuration, unless it is there already.
void Take(const RunResult& run, Comparison::Row& row, std::vector<std::string>& notes) {
  for (const RunResult& other : row.runs) {
    if (other.seed != run.seed) continue;
    if (other.model_digest == run.model_digest) {
      notes.push_back(absl::StrCat(run.folder, " and ", other.folder, " are the same run (seed ",
                                   run.seed, "): counted once."));
      return;
    }
    notes.push_back(absl::StrCat(run.folder, " and ", other.folder,
                                 " have the same settings and seed (", run.seed, "), but ",
                                 run.data_digest == other.data_digest
                                     ? "not the same model: other machines or versions"
                                     : "not the same data",
                                 ". Both are counted."));
    break;
  }
  row.runs.push_back(run);
}

std::vector<std::optional<Spread>> SpreadsOf(const Runs& runs, const Metrics& metrics) {
  std::vector<std::optional<Spread>> spreads;
  for (const std::string& metric : metrics) {
    std::vector<double> values;
    for (const RunResult& run : runs) {
      const std::map<std::string, double> all = ValuesOf(run);
      const auto found = all.find(metric);
      if (found != all.end()) values.push_back(found->second);
    }
    spreads.push_back(values.size() == runs.size() ? std::optional(SpreadOf(metric, values))
                                                   : std::nullopt);
  }
  return spreads;
}

void NoteEnds(const Runs& runs, std::vector<std::string>& notes) {
  for (const RunResult& run : runs) {
    if (!run.done()) {
      notes.push_back(absl::StrCat(run.folder, " was interrupted after round ", run.rounds, "."));
    } else if (run.end == "stopped") {
      notes.push_back(
          absl::StrCat(run.folder, " was stopped by run.stop after round ", run.rounds, "."));
    }
    for (const Drop& drop : DropsOf(run)) {
      notes.push_back(
          absl::StrFormat("%s: %s ended at %.4f, far under its best of %.4f (round %d).",
                          run.folder, drop.metric, drop.last, drop.best, drop.best_round));
    }
  }
}

std::string CellText(const std::optional<Spread>& spread) {
  return spread.has_value() ? NumberText(*spread) : "-";
}

void AppendPaired(const Comparison::Row& row, std::vector<std::string>& line) {
  const std::optional<PairedComparison>& paired = row.against_best;
  if (!paired.has_value() || paired->n == 0) {
    line.insert(line.end(), 4, "-");
    return;
  }
  line.push_back(MetricText(paired->difference));
  line.push_back(IntervalText(paired->interval));
  line.push_back(ProbabilityText(paired->p));
  line.push_back(ProbabilityText(row.p_holm));
}

std::string ExactText(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.17g", *value) : "";
}

void AppendPairedExactly(const Comparison::Row& row, std::vector<std::string>& line) {
  const std::optional<PairedComparison>& paired = row.against_best;
  if (!paired.has_value() || paired->n == 0) {
    line.insert(line.end(), 5, "");
    return;
  }
  const bool several = paired->interval.has_value();
  line.push_back(ExactText(paired->difference));
  line.push_back(several ? ExactText(paired->interval->low) : "");
  line.push_back(several ? ExactText(paired->interval->high) : "");
  line.push_back(ExactText(paired->p));
  line.push_back(ExactText(row.p_holm));
}

std::vector<uint64_t> SeedsOf(const Comparison::Row& row) {
  std::vector<uint64_t> seeds;
  for (const RunResult& run : row.runs) seeds.push_back(run.seed);
  return seeds;
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
  if (!known.contains(select)) {
    const std::vector<std::string> words(known.begin(), known.end());
    const std::string meant = NearestWord(select, words);
    return absl::InvalidArgumentError(
        absl::StrCat("--select ", select, ": no run has a best round by it",
                     meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                     " There are ", absl::StrJoin(words, ", ")));
  }
  Metrics selected = {"best_" + select};
  for (const std::string& metric : reported) selected.push_back(AtBest(metric, select));
  metrics.insert(metrics.begin(), selected.begin(), selected.end());
  return absl::OkStatus();
}

// The values of a metric by seed. Where a seed occurs twice, the first.
std::map<uint64_t, double> BySeed(const Runs& runs, const std::string& metric) {
  std::map<uint64_t, double> values;
  for (const RunResult& run : runs) {
    const std::map<std::string, double> all = ValuesOf(run);
    if (const auto found = all.find(metric); found != all.end())
      values.try_emplace(run.seed, found->second);
  }
  return values;
}

// Compares each row with the best one, over the seeds that both have.
void PairWithBest(const std::string& metric, Comparison& comparison) {
  comparison.paired = metric;
  const auto at = static_cast<size_t>(std::ranges::find(comparison.metrics, metric) -
                                      comparison.metrics.begin());
  const bool higher = HigherMetricIsBetter(metric);
  const Comparison::Row* best = nullptr;
  for (const Comparison::Row& row : comparison.rows) {
    if (!row.values[at].has_value()) continue;
    const double mean = row.values[at]->mean;
    if (best == nullptr || (higher ? mean > best->values[at]->mean : mean < best->values[at]->mean))
      best = &row;
  }
  if (best == nullptr) return;
  const std::map<uint64_t, double> best_values = BySeed(best->runs, metric);
  std::vector<std::optional<double>> p;
  for (Comparison::Row& row : comparison.rows) {
    if (&row != best) {
      std::vector<double> values, others;
      for (const auto& [seed, value] : BySeed(row.runs, metric)) {
        const auto other = best_values.find(seed);
        if (other == best_values.end()) continue;
        values.push_back(value);
        others.push_back(other->second);
      }
      row.against_best = CompareInPairs(values, others);
    }
    p.push_back(row.against_best.has_value() ? row.against_best->p : std::nullopt);
  }
  const std::vector<std::optional<double>> holm = HolmAdjusted(p);
  for (size_t i = 0; i < comparison.rows.size(); ++i) comparison.rows[i].p_holm = holm[i];
  comparison.notes.push_back(absl::StrCat(
      "p is of Student's paired test of ", metric,
      " against the best row, over common seeds; Holm's holds for all rows together."));
}

}  // namespace

absl::StatusOr<std::vector<RunResult>> ReadRuns(const std::vector<std::string>& paths) {
  Runs runs;
  for (const std::string& path : paths) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> folders, RunFoldersOf(path));
    for (const std::string& folder : folders) {
      if (!FileExists(folder + "/summary.json")) {
        return absl::NotFoundError(
            absl::StrCat(folder, FileExists(folder + "/config.toml")
                                     ? " has no summary.json: the run is not over; go on with "
                                       "macaw simulate --resume"
                                     : " holds no run: it has no summary.json"));
      }
      MACAW_ASSIGN_OR_RETURN(RunResult run, ReadResult(folder));
      if (run.algorithm.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat(folder,
                         "/summary.json does not name the run's algorithm and settings: "
                         "it was written by an older version; run it again"));
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

absl::StatusOr<Comparison> Compare(const std::vector<RunResult>& runs, Metrics metrics,
                                   const algorithms::Registry& registry,
                                   const CompareChoice& choice) {
  if (runs.empty()) return absl::InvalidArgumentError("there is no run to compare");
  if (!choice.select.empty()) MACAW_RETURN_IF_ERROR(Select(choice.select, runs, metrics));
  if (!choice.paired.empty() && std::ranges::find(metrics, choice.paired) == metrics.end())
    metrics.push_back(choice.paired);
  MACAW_RETURN_IF_ERROR(CheckMetrics(metrics, runs));
  Comparison comparison{.keys = DifferingKeys(runs),
                        .metrics = metrics.empty() ? UsualMetrics(runs) : std::move(metrics)};
  comparison.equal = EqualSettings(runs, comparison.keys, registry);
  for (const RunResult& run : runs) {
    auto row = std::ranges::find_if(comparison.rows, [&](const Comparison::Row& other) {
      return other.runs.front().algorithm == run.algorithm &&
             other.runs.front().settings == run.settings;
    });
    if (row == comparison.rows.end()) {
      Comparison::Row fresh;
      for (const std::string& key : comparison.keys)
        fresh.settings.push_back(SettingText(run, key, registry));
      row = comparison.rows.insert(row, std::move(fresh));
    }
    Take(run, *row, comparison.notes);
  }
  for (Comparison::Row& row : comparison.rows) {
    std::ranges::stable_sort(row.runs, {}, &RunResult::seed);
    row.values = SpreadsOf(row.runs, comparison.metrics);
    NoteEnds(row.runs, comparison.notes);
  }
  for (const std::string& metric : comparison.metrics) {
    if (absl::StartsWith(metric, "best_") && ChoosesByTestRows(metric))
      comparison.notes.push_back(TestRowsChooseText(metric));
  }
  if (!choice.paired.empty()) PairWithBest(choice.paired, comparison);
  return comparison;
}

std::string TableText(const Comparison& comparison) {
  std::vector<std::string> head = comparison.keys;
  head.insert(head.end(), {"runs", "seeds"});
  head.insert(head.end(), comparison.metrics.begin(), comparison.metrics.end());
  const bool paired = !comparison.paired.empty();
  if (paired)
    head.insert(head.end(),
                {comparison.paired + " minus the best", "95 % interval", "p", "p, Holm"});
  std::vector<std::vector<std::string>> lines = {head};
  for (const Comparison::Row& row : comparison.rows) {
    std::vector<std::string> line;
    for (const std::string& setting : row.settings) line.push_back(setting.empty() ? "-" : setting);
    line.push_back(absl::StrCat(row.runs.size()));
    line.push_back(SeedsText(SeedsOf(row)));
    for (const std::optional<Spread>& value : row.values) line.push_back(CellText(value));
    if (paired) AppendPaired(row, line);
    lines.push_back(std::move(line));
  }
  std::string text = AlignedText(lines);
  if (!comparison.equal.empty())
    absl::StrAppend(&text, "the same in all: ", absl::StrJoin(comparison.equal, ", "), "\n");
  for (const std::string& note : comparison.notes) absl::StrAppend(&text, note, "\n");
  return text;
}

std::string TableCsv(const Comparison& comparison) {
  std::vector<std::string> head = comparison.keys;
  head.insert(head.end(), {"runs", "seeds"});
  for (const std::string& metric : comparison.metrics)
    head.insert(head.end(), {metric, metric + "_std"});
  const bool paired = !comparison.paired.empty();
  if (paired)
    head.insert(head.end(), {"minus_best", "minus_best_low", "minus_best_high", "p", "p_holm"});
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    absl::StrAppend(&text, CsvLine(cells));
  };
  add(head);
  for (const Comparison::Row& row : comparison.rows) {
    std::vector<std::string> line = row.settings;
    line.push_back(absl::StrCat(row.runs.size()));
    line.push_back(absl::StrJoin(SeedsOf(row), " "));
    for (const std::optional<Spread>& value : row.values) {
      line.push_back(value.has_value() ? absl::StrFormat("%.17g", value->mean) : "");
      line.push_back(value.has_value() ? ExactText(value->std) : "");
    }
    if (paired) AppendPairedExactly(row, line);
    add(line);
  }
  return text;
}

}  // namespace macaw::cli
