#include "server/summary.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"
#include "server/coarse_sums.h"
#include "server/early_stopping.h"
#include "server/selection.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Extremes {
  OrderedJson best = OrderedJson::object();
  OrderedJson bests = OrderedJson::object();
  OrderedJson rounds_to = OrderedJson::object();
  OrderedJson last = OrderedJson::object();
  uint64_t left_out = 0, left_out_rounds = 0;      // clients' turns, and rounds with any
  uint64_t coarse_rounds = 0;                      // IsCoarse
  uint64_t bytes_up = 0, bytes_down = 0;           // of all rounds
  OrderedJson bytes_to = OrderedJson::object();    // of the rounds up to those of rounds_to
  std::optional<double> virtual_seconds;           // of all rounds, of a run with [devices]
  OrderedJson virtual_to = OrderedJson::object();  // of the rounds up to those of rounds_to
};

// A column of whole numbers. From 10¹⁵ on rows have them as floats, which may be beyond an integer.
uint64_t WholeNumber(const OrderedJson& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_number_float()) return row.value(column, uint64_t{0});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const double value = found->get<double>();
  if (!(value > 0)) return 0;
  return value < static_cast<double>(kMost) ? static_cast<uint64_t>(value) : uint64_t{kMost};
}

// The metrics of test rows in the row. They are reported beside what chose the row's round.
OrderedJson ReportOf(const OrderedJson& row) {
  OrderedJson report = OrderedJson::object();
  for (const auto& [name, value] : row.items()) {
    const bool reported = RowsOfMetric(name) == MetricRows::kTest && OfUntrainedRows(name);
    if (reported && value.is_number()) report[name] = value;
  }
  return report;
}

// Whether a sum of the row's round is too coarse for what its clients sent.
bool HasCoarseSum(const OrderedJson& row, const std::vector<std::string>& channels) {
  return std::ranges::any_of(channels, [&](const std::string& channel) {
    const auto used = row.find(absl::StrCat("used_bound_", channel));
    return used != row.end() && used->is_number() && IsCoarse(used->get<double>());
  });
}

void KeepBest(const std::string& metric, const OrderedJson& value, const OrderedJson& row,
              OrderedJson& bests) {
  if (!value.is_number()) return;
  const auto so_far = bests.find(metric);
  const bool better =
      so_far == bests.end() ||
      (HigherIsBetter(metric) ? value.get<double>() > (*so_far)["value"].get<double>()
                              : value.get<double>() < (*so_far)["value"].get<double>());
  if (!better) return;
  bests[metric] = {{"value", value}, {"round", row["round"]}};
  if (RowsOfMetric(metric) == MetricRows::kTest) return;
  if (OrderedJson report = ReportOf(row); !report.empty())
    bests[metric]["report"] = std::move(report);
}

// Reads metrics.jsonl once: the last value of every column, the best rows of the chosen column and
// of those over rows that nobody trains on, and the first rounds at which the accuracy reached the
// usual thresholds.
absl::StatusOr<Extremes> ReadExtremes(const std::string& path, const SummaryFacts& facts) {
  std::string metric = facts.stop_metric;
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<OrderedJson> rows;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    rows.push_back(OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false));
    if (!rows.back().is_object())
      return absl::DataLossError(absl::StrCat(path, " holds a line that is not JSON"));
  }
  if (metric.empty()) {
    metric = UsualMetric([&](const std::string& name) {
      return std::ranges::any_of(rows, [&](const OrderedJson& row) { return row.contains(name); });
    });
  }
  const bool higher = HigherIsBetter(metric);
  Extremes extremes;
  for (const OrderedJson& row : rows) {
    const uint64_t left_out = row.value("left_out", uint64_t{0});
    extremes.left_out += left_out;
    extremes.left_out_rounds += left_out > 0 ? 1 : 0;
    extremes.coarse_rounds += HasCoarseSum(row, facts.bounded_channels) ? 1 : 0;
    extremes.bytes_up += WholeNumber(row, "bytes_up");
    extremes.bytes_down += WholeNumber(row, "bytes_down");
    if (const auto seconds = row.find("virtual_seconds"); seconds != row.end())
      extremes.virtual_seconds = extremes.virtual_seconds.value_or(0) + seconds->get<double>();
    // As the stop rule counts them, so that the best round and the best model agree.
    const bool may_be_best = !facts.chooses || facts.chooses(Round(row.value("round", 0U)));
    for (const auto& [name, value] : row.items()) {
      extremes.last[name] = value;
      if (may_be_best && OfUntrainedRows(name)) KeepBest(name, value, row, extremes.bests);
    }
    if (!row.contains(metric) || !row[metric].is_number()) continue;
    const double value = row[metric].get<double>();
    if (may_be_best && (!extremes.best.contains("value") ||
                        (higher ? value > extremes.best["value"].get<double>()
                                : value < extremes.best["value"].get<double>()))) {
      const MetricRows of = RowsOfMetric(metric);
      extremes.best = {
          {"metric", metric}, {"value", value}, {"round", row["round"]}, {"rows", Name(of)}};
      OrderedJson report = ReportOf(row);
      if (of != MetricRows::kTest && !report.empty()) extremes.best["report"] = std::move(report);
    }
    for (const char* mark : kAccuracyMarks) {
      const bool reached =
          may_be_best && metric.find("accuracy") != std::string::npos && value >= std::atof(mark);
      if (!reached || extremes.rounds_to.contains(mark)) continue;
      extremes.rounds_to[mark] = row["round"];
      extremes.bytes_to[mark] = {{"up", extremes.bytes_up}, {"down", extremes.bytes_down}};
      if (extremes.virtual_seconds.has_value())
        extremes.virtual_to[mark] = *extremes.virtual_seconds;
    }
  }
  return extremes;
}

}  // namespace

absl::StatusOr<OrderedJson> SummaryOf(const std::string& metrics, const SummaryFacts& facts) {
  MACAW_ASSIGN_OR_RETURN(const Extremes extremes, ReadExtremes(metrics, facts));
  OrderedJson final = extremes.last;
  const uint32_t final_round = final.value("round", 0u);
  final.erase("round");
  OrderedJson bytes = {{"up", extremes.bytes_up}, {"down", extremes.bytes_down}};
  if (facts.base_bytes > 0) bytes["base"] = facts.base_bytes;
  OrderedJson summary = {
      {"name", facts.name},
      {"program", facts.program},
      {"algorithm", facts.algorithm},
      {"settings", OrderedJson::parse(facts.settings, nullptr, /*allow_exceptions=*/false)},
      {"inputs", OrderedJson::parse(facts.inputs, nullptr, /*allow_exceptions=*/false)},
      {"seed", facts.seed},
      {"data_digest", facts.data_digest.Hex()},
      {"end", facts.end},
      {"reason", facts.reason},
      {"rounds", facts.rounds},
      {"seconds", facts.seconds},
      {"rounds_per_second",
       facts.session_seconds > 0 ? facts.session_rounds / facts.session_seconds : 0.0},
      {"model_digest", facts.model_digest.Hex()},
      {"parameters", facts.parameters},
      {"final", final},
      {"best", extremes.best},
      {"bests", extremes.bests},
      {"rounds_to", extremes.rounds_to},
      {"bytes", std::move(bytes)},
      {"bytes_to", extremes.bytes_to},
      {"traffic_bytes", {{"up", facts.sent_bytes}, {"down", facts.received_bytes}}},
      {"left_out", {{"clients", extremes.left_out}, {"rounds", extremes.left_out_rounds}}},
      {"peak_memory_bytes", {{"server", facts.server_memory}, {"workers", facts.worker_memory}}},
      {"reproducible", facts.profiles.size() <= 1}};
  if (facts.end == "stopped") summary["stopped_by"] = facts.by_caller ? "caller" : "rule";
  // An interrupted run may not have evaluated its last round, whose row comes with a resume.
  if (final_round != facts.rounds) summary["final_round"] = final_round;
  if (extremes.coarse_rounds > 0) summary["coarse_sums"] = {{"rounds", extremes.coarse_rounds}};
  if (extremes.virtual_seconds.has_value()) {
    summary["virtual_seconds"] = *extremes.virtual_seconds;
    summary["virtual_seconds_to"] = extremes.virtual_to;
  }
  OrderedJson profiles = OrderedJson::array();
  for (const NumericProfile& profile : facts.profiles) {
    profiles.push_back({{"trainer", profile.trainer},
                        {"instruction_set", profile.instruction_set},
                        {"libraries", profile.libraries}});
  }
  if (!profiles.empty()) summary["profile"] = profiles.front();
  if (profiles.size() > 1) summary["profiles"] = std::move(profiles);
  if (facts.state_digest.has_value()) summary["state_digest"] = facts.state_digest->Hex();
  if (facts.epsilon) {
    if (const std::optional<double> epsilon = facts.epsilon(); epsilon.has_value())
      summary["privacy"] = {
          {"epsilon", *epsilon}, {"delta", facts.delta}, {"rounds", facts.rounds}};
  }
  return summary;
}

}  // namespace macaw::server
