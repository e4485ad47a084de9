#include "cli/results/result.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/config/config.h"
#include "cli/config/idle_keys.h"
#include "cli/config/settings.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/spelling.h"
#include "core/status.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFar = 0.25;  // Drop, in result.h
constexpr char kNextLine[] = "\n           ";
constexpr char kBalanced[] = "balanced_accuracy";
constexpr char kAlgorithm[] = "algorithm.name";

// Before an accuracy: what it took to reach it.
constexpr char kRoundsTo[] = "rounds_to_", kBytesUpTo[] = "bytes_up_to_",
               kBytesDownTo[] = "bytes_down_to_", kVirtualSecondsTo[] = "virtual_seconds_to_";
constexpr const char* kTargets[] = {kRoundsTo, kBytesUpTo, kBytesDownTo, kVirtualSecondsTo};

bool IsAccuracyMark(absl::string_view text) {
  return std::ranges::any_of(server::kAccuracyMarks,
                             [&](absl::string_view mark) { return mark == text; });
}

// Removes JSON's quotes: fedavg instead of "fedavg".
std::string Unquoted(const std::string& json) {
  const bool quoted = json.size() >= 2 && json.front() == '"' && json.back() == '"';
  return quoted ? json.substr(1, json.size() - 2) : json;
}

template <typename T>
T ValueOr(const Json& object, const char* key, T fallback) {
  const auto found = object.find(key);
  if constexpr (std::is_same_v<T, std::string>) {
    return found != object.end() && found->is_string() ? found->template get<T>() : fallback;
  } else {
    return found != object.end() && found->is_number() ? found->template get<T>() : fallback;
  }
}

// The nested object in `object`, or an empty one. Valid as long as `object`.
const Json& ObjectAt(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

std::map<std::string, double> NumbersAt(const Json& object, const char* key) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : ObjectAt(object, key).items()) {
    if (value.is_number()) numbers[name] = value.get<double>();
  }
  return numbers;
}

// The accuracy of guessing: one divided by the number of classes.
double GuessOf(const RunResult& result) {
  const auto found = result.settings.find("model.classes");
  double classes = 0;
  if (found == result.settings.end() || !absl::SimpleAtod(found->second, &classes)) return 0;
  return 1 / std::max(2.0, classes);  // a binary task has one output
}

// Metrics of the training rows, then of the test rows; no statistics over clients.
std::vector<std::string> MetricsToShow(const RunResult& result) {
  std::vector<std::string> metrics = {"train_loss", "test_loss", "test_accuracy"};
  for (const auto& [metric, best] : result.bests) {
    if (std::ranges::find(metrics, metric) == metrics.end()) metrics.push_back(metric);
  }
  return metrics;
}

}  // namespace

absl::StatusOr<RunResult> ReadResult(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  // The folder is an argument, so a damaged file is bad input (cli/process/exit.h).
  if (!summary.is_object())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON object"));
  RunResult result;
  result.folder = folder;
  result.name = ValueOr<std::string>(summary, "name", "");
  result.algorithm = ValueOr<std::string>(summary, "algorithm", "");
  result.end = ValueOr<std::string>(summary, "end", "");
  result.reason = ValueOr<std::string>(summary, "reason", "");
  for (const auto& [key, value] : ObjectAt(summary, "settings").items())
    result.settings[key] = value.dump();
  for (const auto& [key, digest] : ObjectAt(summary, "inputs").items()) {
    if (digest.is_string()) result.inputs[key] = digest.get<std::string>();
  }
  result.seed = ValueOr<uint64_t>(summary, "seed", 0);
  result.rounds = ValueOr<uint32_t>(summary, "rounds", 0);
  result.seconds = ValueOr<double>(summary, "seconds", 0);
  result.rounds_per_second = ValueOr<double>(summary, "rounds_per_second", 0);
  result.model_digest = ValueOr<std::string>(summary, "model_digest", "");
  result.data_digest = ValueOr<std::string>(summary, "data_digest", "");
  result.final = NumbersAt(summary, "final");
  for (const auto& [metric, value] : ObjectAt(summary, "final").items()) {
    if (value.is_null()) result.undefined.insert(metric);
  }
  result.rounds_to = NumbersAt(summary, "rounds_to");
  for (const auto& [way, bytes] : NumbersAt(summary, "bytes"))
    result.costs["total_bytes_" + way] = bytes;
  const Json& bytes_to = ObjectAt(summary, "bytes_to");
  for (const auto& [accuracy, ignored] : bytes_to.items()) {
    for (const auto& [way, bytes] : NumbersAt(bytes_to, accuracy.c_str()))
      result.costs[absl::StrCat("bytes_", way, "_to_", accuracy)] = bytes;
  }
  if (summary.contains("virtual_seconds")) {
    result.costs["total_virtual_seconds"] = ValueOr<double>(summary, "virtual_seconds", 0);
    for (const auto& [accuracy, seconds] : NumbersAt(summary, "virtual_seconds_to"))
      result.costs["virtual_seconds_to_" + accuracy] = seconds;
  }
  result.left_out = ValueOr<uint64_t>(ObjectAt(summary, "left_out"), "clients", 0);
  result.left_out_rounds = ValueOr<uint64_t>(ObjectAt(summary, "left_out"), "rounds", 0);
  result.coarse_rounds = ValueOr<uint64_t>(ObjectAt(summary, "coarse_sums"), "rounds", 0);
  for (const auto& [metric, best] : ObjectAt(summary, "bests").items()) {
    if (!best.is_object()) continue;
    result.bests[metric] = {.value = ValueOr<double>(best, "value", std::nan("")),
                            .round = ValueOr<uint32_t>(best, "round", 0),
                            .report = NumbersAt(best, "report")};
  }
  const Json& best = ObjectAt(summary, "best");
  result.best_metric = ValueOr<std::string>(best, "metric", "");
  if (result.settings.contains("run.stop.patience") && !summary.contains("best_model"))
    result.best_not_kept = ValueOr<uint32_t>(best, "round", 0);
  return result;
}

std::map<std::string, double> ValuesOf(const RunResult& run) {
  std::map<std::string, double> values = run.final;
  for (const auto& [metric, best] : run.bests) {
    values["best_" + metric] = best.value;
    for (const auto& [reported, value] : best.report) values[AtBest(reported, metric)] = value;
  }
  for (const auto& [accuracy, round] : run.rounds_to) values["rounds_to_" + accuracy] = round;
  values.insert(run.costs.begin(), run.costs.end());
  values["seconds"] = run.seconds;
  values["rounds_per_second"] = run.rounds_per_second;
  return values;
}

std::string AtBest(const std::string& reported, const std::string& chosen_by) {
  return absl::StrCat(reported, "_at_best_", chosen_by);
}

bool IsTarget(const std::string& metric) {
  return std::ranges::any_of(kTargets, [&](absl::string_view target) {
    return absl::StartsWith(metric, target) && IsAccuracyMark(metric.substr(target.size()));
  });
}

bool IsOfVirtualTime(const std::string& metric) {
  return absl::StrContains(metric, "virtual_seconds");
}

bool HasClock(const std::map<std::string, double>& values) {
  return values.contains("total_virtual_seconds");
}

absl::Status CheckTarget(const std::string& key, const std::string& metric) {
  for (const char* target : kTargets) {
    if (!absl::StartsWith(metric, target) || IsTarget(metric)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, " \"", metric, "\": runs note when they reach an accuracy of ",
                     absl::StrJoin(server::kAccuracyMarks, ", "), "; name one of these, such as ",
                     target, server::kAccuracyMarks[0]));
  }
  return absl::OkStatus();
}

std::string TargetAccuracyOf(const RunResult& run) {
  return absl::StrContains(run.best_metric, "accuracy") ? run.best_metric : "";
}

std::vector<std::string> TargetsOf(const std::map<std::string, double>& values) {
  const bool has_accuracy = std::ranges::any_of(
      values, [](const auto& value) { return absl::StrContains(value.first, "accuracy"); });
  std::vector<std::string> targets;
  if (!has_accuracy) return targets;
  for (const auto& [target, total] : {std::pair(kRoundsTo, ""),
                                      {kBytesUpTo, "total_bytes_up"},
                                      {kBytesDownTo, "total_bytes_down"},
                                      {kVirtualSecondsTo, "total_virtual_seconds"}}) {
    if (*total != '\0' && !values.contains(total)) continue;
    for (const char* mark : server::kAccuracyMarks) targets.push_back(absl::StrCat(target, mark));
  }
  return targets;
}

bool IsColumn(const std::string& metric) {
  const bool other =
      metric == "seconds" || metric == "rounds_per_second" ||
      absl::StartsWith(metric, "total_bytes_") || metric == "total_virtual_seconds" ||
      std::ranges::any_of(kTargets,
                          [&](const char* target) { return absl::StartsWith(metric, target); }) ||
      absl::StartsWith(metric, "best_");
  return !other && !absl::StrContains(metric, "_at_best_");
}

bool ChoosesByTestRows(const std::string& metric) {
  if (absl::StrContains(metric, "_at_best_")) return false;
  return server::RowsOfMetric(absl::StripPrefix(metric, "best_")) == server::MetricRows::kTest;
}

std::string TestRowsChooseText(const std::string& metric) {
  return absl::StrCat(
      metric,
      " is of test rows: what it chooses is judged by the rows that chose it, and looks better than "
      "it is. With data.central_val_fraction (or data.val_fraction and evaluation.splits) "
      "validation rows choose, and the test value is reported beside.");
}

std::vector<std::string> DifferingKeys(const std::vector<RunResult>& runs) {
  std::vector<std::string> keys;
  std::set<std::string> all;
  for (const RunResult& run : runs) {
    for (const auto& [key, value] : run.settings) all.insert(key);
  }
  const auto differs = [&](const auto& value_of) {
    return std::ranges::any_of(
        runs, [&](const RunResult& run) { return value_of(run) != value_of(runs.front()); });
  };
  if (differs([](const RunResult& run) { return run.algorithm; })) keys.push_back(kAlgorithm);
  for (const std::string& key : all) {
    const auto value = [&](const RunResult& run) {
      const auto found = run.settings.find(key);
      return found == run.settings.end() ? std::string() : found->second;
    };
    if (differs(value)) keys.push_back(key);
  }
  return keys;
}

namespace {

// Whether the key is of another kind of attack than the run's.
bool IsOfAnotherAttack(const std::string& key, const RunResult& run,
                       const algorithms::Registry& registry) {
  const auto kind = run.settings.find("attack.kind");
  if (!absl::StartsWith(key, "attack.") || kind == run.settings.end()) return false;
  Config config;
  config.run.attack = {.kind = Unquoted(kind->second), .fraction = 0.5};
  return std::ranges::any_of(AllFields(), [&](const Field& field) {
    return field.key == key && !WhyIdle(field, config, registry).empty();
  });
}

}  // namespace

std::string SettingOf(const RunResult& run, const std::string& key,
                      const algorithms::Registry& registry) {
  if (key == kAlgorithm) return run.algorithm;
  const auto found = run.settings.find(key);
  if (found != run.settings.end()) return Unquoted(found->second);
  bool of_another = absl::StartsWith(key, "algorithm.") &&
                    !absl::StartsWith(key, absl::StrCat("algorithm.", run.algorithm, "."));
  // A section that the run does not use.
  for (const auto& [prefix, kind] :
       {std::pair("attack.", "attack.kind"), std::pair("privacy.", "privacy.mechanism"),
        std::pair("update.", "update.codec")}) {
    of_another = of_another ||
                 (absl::StartsWith(key, prefix) && key != kind && !run.settings.contains(kind));
  }
  of_another = of_another || IsOfAnotherAttack(key, run, registry);
  const auto source = run.settings.find("data.source");
  // A fleet's server does not know its nodes' rows.
  for (const char* section : {"data.", "partition."})
    of_another = of_another || (source == run.settings.end() && absl::StartsWith(key, section));
  // A prepared file's own clients may keep their rows.
  of_another = of_another || (key == "data.test_fraction" && source != run.settings.end() &&
                              source->second == "\"prepared\"");
  return of_another ? "" : Unquoted(DefaultOf(key, registry));
}

std::vector<Drop> DropsOf(const RunResult& result) {
  std::vector<Drop> drops;
  const double guess = GuessOf(result);
  const bool balanced = absl::StrContains(result.best_metric, kBalanced);
  for (const auto& [metric, best] : result.bests) {
    if (balanced && !absl::StrContains(metric, kBalanced)) continue;
    const auto last = result.final.find(metric);
    if (!absl::EndsWith(metric, "accuracy") || last == result.final.end()) continue;
    const double gained = best.value - guess;
    if (gained < kFar * (1 - guess) || last->second >= best.value - kFar * gained) continue;
    drops.push_back({.metric = metric,
                     .last = last->second,
                     .best = best.value,
                     .guess = guess,
                     .best_round = best.round});
  }
  return drops;
}

std::string WarningText(const Drop& drop, const RunResult& result) {
  return absl::StrFormat(
      "%s ended at %.4f, far under its best of %.4f after round %d: more than a quarter of what "
      "that had gained over guessing (%.4g) is lost.\nThe run was unstable: try a smaller "
      "local.lr, fewer local.epochs, a larger cohort, or other parameters (macaw algorithms %s).",
      drop.metric, drop.last, drop.best, drop.best_round, drop.guess, result.algorithm);
}

std::string BestNotKeptText(const RunResult& result) {
  if (result.best_not_kept == 0) return "";
  return absl::StrCat("there is no model.best.safetensors: the model of round ",
                      result.best_not_kept, ", the best by ", result.best_metric,
                      ", was not kept. run.stop was given or changed after that round, or the ",
                      "model's file is gone");
}

std::string LeftOutText(const RunResult& result) {
  if (result.left_out == 0) return "";
  return absl::StrCat(Counted(result.left_out, "turn"), " of clients did not count, in ",
                      Counted(result.left_out_rounds, "round"), " of ", result.rounds,
                      ": `macaw log ", ForShell(result.folder), "` says which and why");
}

std::string CoarseSumsText(const RunResult& result) {
  if (result.coarse_rounds == 0) return "";
  return absl::StrCat(
      "In ", Counted(result.coarse_rounds, "round"), " of ", result.rounds,
      " clients' updates were so small beside run.contribution_bound that most of "
      "each was rounded away.\nSet a smaller run.contribution_bound: sums have steps "
      "of about 1e-15 of it.");
}

std::string ResultText(const RunResult& result) {
  std::string text =
      absl::StrFormat("done       %d rounds in %.1f s (%.3g rounds/s after the start)\n",
                      result.rounds, result.seconds, result.rounds_per_second);
  std::string metrics;
  for (const std::string& metric : MetricsToShow(result)) {
    const auto found = result.final.find(metric);
    if (found != result.final.end())
      absl::StrAppendFormat(&metrics, "  %s %.4f", metric, found->second);
  }
  if (!metrics.empty()) absl::StrAppend(&text, "final    ", metrics, "\n");
  const auto best = result.bests.find(result.best_metric);
  if (best != result.bests.end() && !best->second.report.empty()) {
    absl::StrAppendFormat(&text, "best       %s %.4f in round %d, with", best->first,
                          best->second.value, best->second.round);
    for (const auto& [metric, value] : best->second.report)
      absl::StrAppendFormat(&text, "  %s %.4f", metric, value);
    absl::StrAppend(&text, "\n");
  }
  if (const std::string left_out = LeftOutText(result); !left_out.empty())
    absl::StrAppend(&text, "left out   ", left_out, "\n");
  const auto warn = [&](const std::string& warning) {
    absl::StrAppend(&text, "warning    ", absl::StrReplaceAll(warning, {{"\n", kNextLine}}), "\n");
  };
  if (const std::string not_kept = BestNotKeptText(result); !not_kept.empty()) warn(not_kept);
  for (const Drop& drop : DropsOf(result)) warn(WarningText(drop, result));
  if (const std::string coarse = CoarseSumsText(result); !coarse.empty()) warn(coarse);
  absl::StrAppend(
      &text, "results    ", result.folder, "/: summary.json, metrics.jsonl, model.safetensors\n",
      "in Python  pandas.read_json(\"", result.folder, "/metrics.jsonl\", lines=True)\n",
      "           safetensors.torch.load_file(\"", result.folder, "/model.safetensors\")\n");
  return text;
}

}  // namespace macaw::cli
