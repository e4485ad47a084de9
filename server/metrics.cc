#include "server/metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The Gini coefficient of values that are not negative: half their mean absolute difference, over
// all pairs, divided by their mean. 0: all are equal. Of n equal to 0 but one: 1 − 1/n.
double Gini(const std::vector<double>& sorted, double mean) {
  const auto n = static_cast<double>(sorted.size());
  if (mean == 0) return 0;
  double weighted = 0;  // Σ (2i − n + 1)·x_i, i from 0
  for (size_t i = 0; i < sorted.size(); ++i)
    weighted += (2 * static_cast<double>(i) - n + 1) * sorted[i];
  return weighted / (n * n * mean);
}

// Linear interpolation between order statistics (NumPy's default).
double Quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (position - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

std::string StatisticName(absl::string_view metric, absl::string_view statistic) {
  return absl::StrCat(metric, "_", statistic);
}

}  // namespace

namespace {

// How the columns of what is evaluated begin, by EvaluatedRows.
constexpr const char* kPrefixes[] = {
    "test_",         "clients_train_",       "val_",
    "clients_test_", "clients_test_global_", "clients_test_tuned_",
    "clients_val_",  "heldout_test_",        "heldout_test_tuned_"};
static_assert(std::size(kPrefixes) == kEvaluatedRows);

}  // namespace

std::string ColumnPrefix(EvaluatedRows rows) { return kPrefixes[static_cast<size_t>(rows)]; }

namespace {

// Behind a prefix of clients: over how many the columns are, and how many could not be evaluated.
constexpr char kEvaluatedCount[] = "clients", kMissingCount[] = "missing";

// "test_group2_"
std::string OfGroup(EvaluatedRows rows, uint32_t group) {
  return absl::StrCat(ColumnPrefix(rows), "group", group, "_");
}

bool HasClasses(TaskKind task) {
  return task == TaskKind::kClassification || task == TaskKind::kBinary;
}

// How many rows were evaluated.
double RowsOf(const EvaluationSums& sums, EvaluatedRows of) {
  const auto rows = [](const std::vector<double>& each) { return each.empty() ? 0 : each[0]; };
  if (of == EvaluatedRows::kCentralValidation) return rows(sums.validation);
  if (!IsOfClients(of)) return rows(of == EvaluatedRows::kCentral ? sums.central : sums.train);
  double all = 0;
  for (const EvaluationSums::ClientSums& client : sums.Of(of)) all += rows(client.sums);
  return all;
}

// Whether rows of the client were evaluated.
bool HasRows(const EvaluationSums::ClientSums& client) {
  return !client.sums.empty() && client.sums[0] > 0;
}

OrderedJson ListOf(const std::vector<double>& values) {
  OrderedJson list = OrderedJson::array();
  for (const double value : values)
    list.push_back(std::isnan(value) ? OrderedJson(nullptr) : OrderedJson(value));
  return list;
}

}  // namespace

std::string ConfusionText(const EvaluationSums& sums, const training::ClassCounts& counts) {
  OrderedJson text = {{"round", sums.round.value}};
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    const double rows = RowsOf(sums, static_cast<EvaluatedRows>(i));
    if (rows == 0) continue;
    OrderedJson& of = text[std::string(absl::StripSuffix(kPrefixes[i], "_"))];
    const training::ClassCounts::PerClass each = counts.Each(sums.counts[i]);
    OrderedJson matrix = OrderedJson::array();
    double counted = 0;
    for (const std::vector<double>& row : counts.Confusion(sums.counts[i])) {
      OrderedJson& line = matrix.emplace_back(OrderedJson::array());
      for (const double entry : row) {
        line.push_back(static_cast<int64_t>(entry));
        counted += entry;
      }
    }
    of = {{"rows", static_cast<int64_t>(rows)},  {"counted", static_cast<int64_t>(counted)},
          {"confusion", std::move(matrix)},      {"recall", ListOf(each.recall)},
          {"precision", ListOf(each.precision)}, {"f1", ListOf(each.f1)}};
    if (counts.curves() > 0) of["auc"] = ListOf(each.auc);
  }
  return text.dump() + "\n";
}

absl::Status CheckEvaluationOf(const RunPlan& run, const algorithms::Description& algorithm) {
  const EvaluationConfig& evaluation = run.evaluation;
  if (evaluation.metrics.any()) {
    if (run.task != TaskKind::kBinary && run.task != TaskKind::kClassification) {
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation.metrics are of classes, and run.task is \"", Name(run.task),
                       "\": remove the key"));
    }
    if (run.model.classes > training::kMostClasses) {
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation.metrics count rows by label and prediction, for at most ",
                       training::kMostClasses, " classes; the model has ", run.model.classes));
    }
  }
  if (evaluation.heldout && !algorithm.has_common_model) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation.heldout: algorithm \"", run.algorithm.name,
                     "\" has no common model that a client who joins could start from"));
  }
  return absl::OkStatus();
}

std::vector<MetricColumn> MetricColumns(TaskKind task, const algorithms::Description& algorithm,
                                        const algorithms::Schema& schema, uint32_t groups) {
  using Rows = EvaluatedRows;
  std::vector<MetricColumn> columns;
  const auto add_totals = [&](const std::string& prefix, std::optional<Rows> of) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios)
      columns.push_back({prefix + ratio.name, of});
    if (!of.has_value() || !HasClasses(task)) return;
    for (const char* metric : training::kClassMetricNames)
      columns.push_back({prefix + metric, of, false, metric});
  };
  const auto add_statistics = [&](const std::string& prefix, std::optional<Rows> of) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
      for (const char* statistic : kClientStatistics)
        columns.push_back({StatisticName(prefix + ratio.name, statistic), of, true});
    }
    if (!of.has_value() || !HasClasses(task)) return;
    for (const char* metric : training::kClassMetricNames) {
      for (const char* statistic : kClientStatistics)
        columns.push_back({StatisticName(prefix + metric, statistic), of, true, metric});
    }
  };
  for (const Rows of :
       {Rows::kCentral, Rows::kCentralValidation, Rows::kClients, Rows::kGlobal, Rows::kTuned,
        Rows::kValidation, Rows::kHeldout, Rows::kHeldoutTuned, Rows::kTrain}) {
    const bool common = of == Rows::kCentral || of == Rows::kCentralValidation ||
                        of == Rows::kHeldout || of == Rows::kHeldoutTuned;
    if (common && !algorithm.has_common_model) continue;
    if (of == Rows::kGlobal && !algorithm.has_both_models()) continue;
    add_totals(ColumnPrefix(of), of);
    if (!IsOfClients(of)) continue;
    add_statistics(ColumnPrefix(of), of);
    for (const char* count : {kEvaluatedCount, kMissingCount})
      columns.push_back({ColumnPrefix(of) + count, of});
  }
  for (uint32_t group = 0; groups > 1 && group < groups; ++group) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
      if (algorithm.has_common_model)
        columns.push_back({OfGroup(Rows::kCentral, group) + ratio.name, Rows::kCentral});
      columns.push_back({OfGroup(Rows::kClients, group) + ratio.name, Rows::kClients});
    }
    columns.push_back({OfGroup(Rows::kClients, group) + kEvaluatedCount, Rows::kClients});
  }
  columns.push_back({ColumnPrefix(Rows::kTrain) + kMissingCount, Rows::kTrain});
  columns.push_back({"l2_penalty", Rows::kTrain});
  columns.push_back({"train_objective", Rows::kTrain});
  add_totals("train_", std::nullopt);
  add_statistics("train_client_", std::nullopt);
  if (algorithm.has_personal_models) {
    add_totals("personal_train_", std::nullopt);
    add_statistics("personal_train_client_", std::nullopt);
  }
  for (const algorithms::MetricSpec& metric : schema.metrics)
    columns.push_back({"rule_" + metric.name});
  for (const aggregation::ChannelSpec& channel : schema.up)
    columns.push_back({"used_bound_" + channel.name});
  for (const char* name : {"clients", "left_out", "examples", "steps"}) columns.push_back({name});
  return columns;
}

MetricsRow::MetricsRow(TaskKind task, const PhaseReport& report,
                       const std::vector<std::pair<std::string, double>>& headroom,
                       const std::vector<std::pair<std::string, double>>& rule)
    : task_(task) {
  double examples = 0, steps = 0;
  std::vector<std::vector<double>> per_client, personal;
  for (const fleet::ClientRecord& record :
       report.records) {  // by client id, which fixes the order of every sum below
    examples += record.examples;
    steps += static_cast<double>(record.steps);
    per_client.push_back(record.sums);
    if (!record.personal_sums.empty()) personal.push_back(record.personal_sums);
  }
  columns_ = {
      {"round", report.round.value},
      {"clients", static_cast<double>(report.records.size())},
      {"left_out", static_cast<double>(report.left_out_before.size() + report.left_out.size())},
      {"examples", examples},
      {"steps", steps}};
  AddTotal("train_", per_client);
  AddClientStatistics("train_client_", per_client);
  AddTotal("personal_train_", personal);
  AddClientStatistics("personal_train_client_", personal);
  for (const auto& [channel, used] : headroom) columns_.emplace_back("used_bound_" + channel, used);
  for (const auto& [name, value] : rule) columns_.emplace_back("rule_" + name, value);
}

void MetricsRow::AddTotal(const std::string& prefix, const std::vector<std::vector<double>>& sums) {
  const training::MetricSchema& schema = training::SchemaFor(task_);
  training::MetricSums total;
  for (const std::vector<double>& client : sums) training::AddTo(total, client);
  if (total.size() != schema.sums.size()) return;
  for (const training::MetricRatio& ratio : schema.ratios) {
    columns_.emplace_back(prefix + ratio.name, total[ratio.numerator] / total[ratio.denominator]);
  }
}

void MetricsRow::AddClientStatistics(const std::string& prefix,
                                     const std::vector<std::vector<double>>& sums) {
  const training::MetricSchema schema = training::SchemaFor(task_);
  for (const training::MetricRatio& ratio : schema.ratios) {
    std::vector<double> values;
    for (const std::vector<double>& client : sums) {
      if (client.size() != schema.sums.size() || client[ratio.denominator] == 0) continue;
      values.push_back(client[ratio.numerator] / client[ratio.denominator]);
    }
    AddStatistics(prefix + ratio.name, std::move(values), ratio.higher_is_better);
  }
}

void MetricsRow::AddStatistics(const std::string& metric, std::vector<double> values,
                               bool higher_is_better) {
  if (values.empty()) return;
  double mean = 0, square = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  for (const double value : values) square += (value - mean) * (value - mean);
  // NaN sorts as the largest value, because < alone is not a strict weak order with NaN.
  std::sort(values.begin(), values.end(),
            [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; });
  const size_t tenth = std::max<size_t>(1, values.size() / 10);
  double worst = 0;
  for (size_t i = 0; i < tenth; ++i)
    worst += higher_is_better ? values[i] : values[values.size() - 1 - i];
  const double statistics[] = {mean,
                               std::sqrt(square / static_cast<double>(values.size())),
                               Gini(values, mean),
                               worst / static_cast<double>(tenth),
                               Quantile(values, 0.1),
                               Quantile(values, 0.5),
                               Quantile(values, 0.9)};
  static_assert(std::size(statistics) == std::size(kClientStatistics));
  for (size_t i = 0; i < std::size(statistics); ++i)
    columns_.emplace_back(StatisticName(metric, kClientStatistics[i]), statistics[i]);
}

// The statistics are over the clients for which a metric is defined: the AUC of a client with one
// class is not.
void MetricsRow::AddClassMetrics(const EvaluationSums& sums, const training::ClassCounts& counts) {
  const std::vector<std::string> names = counts.names();
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    const auto of = static_cast<EvaluatedRows>(i);
    const double rows = RowsOf(sums, of);
    if (IsOfClients(of) ? sums.Of(of).empty() : rows == 0) continue;
    const std::vector<double> values = counts.Values(sums.counts[i], rows);
    for (size_t m = 0; m < names.size(); ++m) {
      columns_.emplace_back(ColumnPrefix(of) + names[m], values[m]);
      if (!IsOfClients(of)) continue;
      std::vector<double> of_clients;
      for (const EvaluationSums::ClientSums& client : sums.Of(of)) {
        if (m < client.values.size() && !std::isnan(client.values[m]))
          of_clients.push_back(client.values[m]);
      }
      AddStatistics(ColumnPrefix(of) + names[m], std::move(of_clients), /*higher_is_better=*/true);
    }
  }
}

void MetricsRow::AddPenalty(double lambda, ConstVectorView model) {
  const double squared_norm = DispatchDType(model.dtype(), [&]<typename T>(T) {
    double sum = 0;  // added in layout order, so that all runs get the same bits
    for (const LayoutEntry& entry : model.layout->entries()) {
      if (entry.group != Group::kParameter) continue;  // buffers are not penalised
      for (const T value : model.As<T>().subspan(entry.offset, entry.size)) {
        sum += static_cast<double>(value) * static_cast<double>(value);
      }
    }
    return sum;
  });
  columns_.emplace_back("l2_penalty", 0.5 * lambda * squared_norm);
}

void MetricsRow::AddEvaluation(const EvaluationSums& sums, const training::ClassCounts& counts,
                               const ConceptGroups& groups) {
  AddTotal(ColumnPrefix(EvaluatedRows::kCentral), {sums.central});
  AddTotal(ColumnPrefix(EvaluatedRows::kCentralValidation), {sums.validation});
  AddTotal(ColumnPrefix(EvaluatedRows::kTrain), {sums.train});
  const auto missing =
      static_cast<double>(sums.missing[static_cast<size_t>(EvaluatedRows::kTrain)]);
  if (!sums.train.empty() || missing > 0)
    columns_.emplace_back(ColumnPrefix(EvaluatedRows::kTrain) + kMissingCount, missing);
  const std::optional<double> loss = Get("clients_train_loss"), penalty = Get("l2_penalty");
  if (loss.has_value() && penalty.has_value()) {
    columns_.emplace_back("train_objective", *loss + *penalty);
  }
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    if (IsOfClients(static_cast<EvaluatedRows>(i)))
      AddClients(kPrefixes[i], sums.clients[i], sums.missing[i]);
  }
  AddClassMetrics(sums, counts);
  if (groups.count() > 1) AddGroups(sums, groups);
}

void MetricsRow::AddGroups(const EvaluationSums& sums, const ConceptGroups& groups) {
  for (uint32_t group = 0; group < sums.central_groups.size(); ++group)
    AddTotal(OfGroup(EvaluatedRows::kCentral, group), {sums.central_groups[group]});
  std::vector<std::vector<std::vector<double>>> of_clients(groups.count());
  for (const EvaluationSums::ClientSums& client : sums.Of(EvaluatedRows::kClients)) {
    if (HasRows(client)) of_clients[groups.Of(client.client)].push_back(client.sums);
  }
  for (uint32_t group = 0; group < of_clients.size(); ++group) {
    if (sums.Of(EvaluatedRows::kClients).empty()) break;
    const std::string prefix = OfGroup(EvaluatedRows::kClients, group);
    AddTotal(prefix, of_clients[group]);
    columns_.emplace_back(prefix + kEvaluatedCount, static_cast<double>(of_clients[group].size()));
  }
}

void MetricsRow::AddClients(const std::string& prefix,
                            const std::vector<EvaluationSums::ClientSums>& clients,
                            uint64_t missing) {
  if (clients.empty() && missing == 0) return;
  std::vector<std::vector<double>> sums;
  for (const EvaluationSums::ClientSums& client : clients) sums.push_back(client.sums);
  columns_.emplace_back(prefix + kEvaluatedCount,
                        static_cast<double>(std::ranges::count_if(clients, HasRows)));
  columns_.emplace_back(prefix + kMissingCount, static_cast<double>(missing));
  AddTotal(prefix, sums);  // example-weighted, over all clients' rows
  AddClientStatistics(prefix, sums);
}

std::string MetricsRow::Text() const {
  OrderedJson row = OrderedJson::object();
  for (const auto& [name, value] : columns_) {
    if (!std::isfinite(value)) {
      row[name] = nullptr;
    } else if (value == std::floor(value) && std::fabs(value) < 1e15) {
      row[name] = static_cast<int64_t>(value);
    } else {
      row[name] = value;
    }
  }
  return row.dump();
}

std::optional<MetricsRow> MetricsRow::Parse(TaskKind task, const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("round")) return std::nullopt;
  MetricsRow row;
  row.task_ = task;
  for (const auto& [name, value] : json.items()) {
    row.columns_.emplace_back(name, value.is_number() ? value.get<double>() : std::nan(""));
  }
  return row;
}

std::optional<double> MetricsRow::Get(const std::string& column) const {
  for (const auto& [name, value] : columns_) {
    if (name == column) return value;
  }
  return std::nullopt;
}

}  // namespace macaw::server
