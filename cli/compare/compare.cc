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
#include "cli/config/settings.h"
#include "cli/simulate/repeat.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Runs = std::vector<RunResult>;
using Metrics = std::vector<std::string>;

constexpr char kAlgorithm[] = "algorithm.name";

// Removes JSON's quotes: fedavg instead of "fedavg".
std::string Unquoted(const std::string& json) {
  const bool quoted = json.size() >= 2 && json.front() == '"' && json.back() == '"';
  return quoted ? json.substr(1, json.size() - 2) : json;
}

std::string SettingOf(const RunResult& run, const std::string& key,
                      const algorithms::Registry& registry) {
  if (key == kAlgorithm) return run.algorithm;
  const auto found = run.settings.find(key);
  if (found != run.settings.end()) return Unquoted(found->second);
  const bool of_another = absl::StartsWith(key, "algorithm.") &&
                          !absl::StartsWith(key, absl::StrCat("algorithm.", run.algorithm, "."));
  const std::string otherwise = of_another ? "" : Unquoted(DefaultOf(key, registry));
  return otherwise.empty() ? "-" : otherwise;
}

std::set<std::string> KeysOf(const Runs& runs) {
  std::set<std::string> keys;
  for (const RunResult& run : runs) {
    for (const auto& [key, value] : run.settings) keys.insert(key);
  }
  return keys;
}

// The keys whose values differ between runs, the algorithm first.
std::vector<std::string> DifferingKeys(const Runs& runs) {
  std::vector<std::string> keys;
  const RunResult& first = runs.front();
  const auto differs = [&](const auto& value_of) {
    return std::ranges::any_of(
        runs, [&](const RunResult& run) { return value_of(run) != value_of(first); });
  };
  if (differs([](const RunResult& run) { return run.algorithm; })) keys.push_back(kAlgorithm);
  for (const std::string& key : KeysOf(runs)) {
    const auto value = [&](const RunResult& run) {
      const auto found = run.settings.find(key);
      return found == run.settings.end() ? std::string() : found->second;
    };
    if (differs(value)) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string> EqualSettings(const Runs& runs, const std::vector<std::string>& keys) {
  std::vector<std::string> equal;
  const auto differs = [&](const std::string& key) { return std::ranges::count(keys, key) > 0; };
  if (!differs(kAlgorithm)) equal.push_back(absl::StrCat(kAlgorithm, " ", runs[0].algorithm));
  for (const auto& [key, value] : runs[0].settings) {
    if (!differs(key)) equal.push_back(absl::StrCat(key, " ", Unquoted(value)));
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

std::string NumberText(double number) {
  if (number == std::floor(number) && std::fabs(number) < 1e9)
    return absl::StrFormat("%.0f", number);
  return std::fabs(number) < 1000 ? absl::StrFormat("%.4f", number)
                                  : absl::StrFormat("%.6g", number);
}

std::string CellText(const std::optional<Spread>& spread) {
  if (!spread.has_value()) return "-";
  if (spread->values.size() < 2) return NumberText(spread->mean);
  if (std::fabs(spread->mean) < 1000)
    return absl::StrFormat("%.4f ± %.4f", spread->mean, spread->std);
  return absl::StrFormat("%.6g ± %.3g", spread->mean, spread->std);
}

std::vector<uint64_t> SeedsOf(const Comparison::Row& row) {
  std::vector<uint64_t> seeds;
  for (const RunResult& run : row.runs) seeds.push_back(run.seed);
  return seeds;
}

}  // namespace

absl::StatusOr<std::vector<RunResult>> ReadRuns(const std::vector<std::string>& paths) {
  Runs runs;
  for (const std::string& path : paths) {
    std::vector<std::string> folders = {path};
    if (absl::EndsWith(path, ".json")) {
      MACAW_ASSIGN_OR_RETURN(folders, FoldersOfRepeat(path));
    }
    for (std::string& folder : folders) {
      while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
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
                                   const algorithms::Registry& registry) {
  if (runs.empty()) return absl::InvalidArgumentError("there is no run to compare");
  MACAW_RETURN_IF_ERROR(CheckMetrics(metrics, runs));
  Comparison comparison{.keys = DifferingKeys(runs),
                        .metrics = metrics.empty() ? UsualMetrics(runs) : std::move(metrics)};
  comparison.equal = EqualSettings(runs, comparison.keys);
  for (const RunResult& run : runs) {
    auto row = std::ranges::find_if(comparison.rows, [&](const Comparison::Row& other) {
      return other.runs.front().algorithm == run.algorithm &&
             other.runs.front().settings == run.settings;
    });
    if (row == comparison.rows.end()) {
      Comparison::Row fresh;
      for (const std::string& key : comparison.keys)
        fresh.settings.push_back(SettingOf(run, key, registry));
      row = comparison.rows.insert(row, std::move(fresh));
    }
    Take(run, *row, comparison.notes);
  }
  for (Comparison::Row& row : comparison.rows) {
    std::ranges::stable_sort(row.runs, {}, &RunResult::seed);
    row.values = SpreadsOf(row.runs, comparison.metrics);
    NoteEnds(row.runs, comparison.notes);
  }
  return comparison;
}

std::string TableText(const Comparison& comparison) {
  std::vector<std::string> head = comparison.keys;
  head.insert(head.end(), {"runs", "seeds"});
  head.insert(head.end(), comparison.metrics.begin(), comparison.metrics.end());
  std::vector<std::vector<std::string>> lines = {head};
  for (const Comparison::Row& row : comparison.rows) {
    std::vector<std::string> line = row.settings;
    line.push_back(absl::StrCat(row.runs.size()));
    line.push_back(SeedsText(SeedsOf(row)));
    for (const std::optional<Spread>& value : row.values) line.push_back(CellText(value));
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
      line.push_back(value.has_value() && value->values.size() > 1
                         ? absl::StrFormat("%.17g", value->std)
                         : "");
    }
    add(line);
  }
  return text;
}

}  // namespace macaw::cli
