#include "server/metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/status.h"
#include "plan/named_groups.h"
#include "server/early_stopping.h"
#include "server/engine/possible_losses.h"
#include "training/api/metrics.h"
#include "training/api/row_metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

// How many rows were evaluated.
double RowsOf(const EvaluationSums& sums, EvaluatedRows of) {
  const auto rows = [](const std::vector<double>& each) { return each.empty() ? 0 : each[0]; };
  if (of == EvaluatedRows::kCentralValidation) return rows(sums.validation);
  double all = sums.uncounted[static_cast<size_t>(of)];
  if (!IsOfClients(of))
    return all + rows(of == EvaluatedRows::kCentral ? sums.central : sums.train);
  for (const EvaluationSums::ClientSums& client : sums.Of(of)) all += rows(client.sums);
  return all;
}

// The sums over these rows.
training::MetricSums TotalOf(const EvaluationSums& sums, EvaluatedRows of) {
  if (of == EvaluatedRows::kCentralValidation) return sums.validation;
  if (!IsOfClients(of)) return of == EvaluatedRows::kCentral ? sums.central : sums.train;
  training::MetricSums total;
  for (const EvaluationSums::ClientSums& client : sums.Of(of)) training::AddTo(total, client.sums);
  return total;
}

// Whether rows of the client were evaluated.
bool HasRows(const EvaluationSums::ClientSums& client) {
  return !client.sums.empty() && client.sums[0] > 0;
}

// Whether the client's program has trained without saying this metric.
bool IsUnsaid(const std::vector<double>& sums, const training::MetricRatio& ratio) {
  return ratio.numerator > 1 && std::isnan(sums[ratio.numerator]) && std::isfinite(sums[1]);
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
    const char* prefix = ColumnPrefix(static_cast<EvaluatedRows>(i));
    OrderedJson& of = text[std::string(absl::StripSuffix(prefix, "_"))];
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

// Whether the run's task and model have the metrics of evaluation.metrics.
static absl::Status CheckMetricsOf(const RunPlan& run) {
  const EvaluationMetrics& metrics = run.evaluation.metrics;
  const auto wrong = [&](const char* which, const char* are) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation.metrics: ", which, " ", are,
                                                   ", and run.task is \"", Name(run.task),
                                                   "\": remove the word"));
  };
  const bool classes = run.task == TaskKind::kBinary || run.task == TaskKind::kClassification;
  if (metrics.OfClasses() && !classes)
    return wrong("balanced_accuracy, f1, auc, confusion, top5 and ece", "are of classes");
  if (metrics.r2 && run.task != TaskKind::kRegression) return wrong("r2", "is of regression");
  if (metrics.perplexity && run.task != TaskKind::kNextToken)
    return wrong("perplexity", "is of the next-token task");
  constexpr int64_t kLeastOfTop5 = 6;
  if (metrics.top5 && (run.task == TaskKind::kBinary || run.model.classes < kLeastOfTop5)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation.metrics: top5 is 1 for every model of up to five classes, and this one has ",
        run.task == TaskKind::kBinary ? 2 : run.model.classes, ": remove the word"));
  }
  if (metrics.ByClass() && run.model.classes > training::kMostClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation.metrics: balanced_accuracy, f1, auc and confusion count rows by "
                     "label and prediction, for at most ",
                     training::kMostClasses, " classes; the model has ", run.model.classes));
  }
  return absl::OkStatus();
}

// Whether each column of a group has a name of its own: "a" has a_balanced_accuracy, and a group
// "a_balanced" would have it, too.
static absl::Status CheckGroupsOf(const EvaluationConfig& evaluation) {
  MACAW_ASSIGN_OR_RETURN(const NamedGroups groups, NamedGroups::Parse(evaluation.groups));
  for (const std::string& name : groups.names()) {
    const std::string other = name + "_balanced";
    if (!evaluation.metrics.balanced_accuracy || std::ranges::count(groups.names(), other) == 0)
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation.groups: clients_test_group_", other, "_accuracy would be the accuracy of \"",
        other, "\" and the balanced accuracy of \"", name, "\": give one of them another name"));
  }
  return absl::OkStatus();
}

absl::Status CheckEvaluationOf(const RunPlan& run, const algorithms::Description& algorithm) {
  const EvaluationConfig& evaluation = run.evaluation;
  MACAW_RETURN_IF_ERROR(CheckMetricsOf(run));
  MACAW_RETURN_IF_ERROR(CheckGroupsOf(evaluation));
  if (evaluation.heldout && !algorithm.has_common_model) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation.heldout: algorithm \"", run.algorithm.name,
                     "\" has no common model that a client who joins could start from"));
  }
  if (evaluation.train && !algorithm.shares_models()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation.splits with \"train\" evaluates the server's model on all training rows, and "
        "with algorithm \"",
        run.algorithm.name,
        "\" it stays as it began: take \"train\" out; train_* tell of the rows that clients train "
        "on"));
  }
  return absl::OkStatus();
}

MetricsRow::MetricsRow(TaskKind task, const PhaseReport& report,
                       const std::vector<std::pair<std::string, double>>& headroom,
                       const std::vector<std::pair<std::string, double>>& rule)
    : task_(task) {
  for (const RoundColumn& column : kRoundColumns) {
    if (column.has(report)) columns_.emplace_back(column.name, column.of(report));
  }
  std::vector<std::vector<double>> per_client, personal;
  for (const fleet::ClientRecord& record :
       report.records) {  // by client id, which fixes the order of every sum below
    per_client.push_back(record.sums);
    if (!record.personal_sums.empty()) personal.push_back(record.personal_sums);
  }
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
  if (total.size() < schema.sums.size()) return;
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
      if (client.size() < schema.sums.size() || client[ratio.denominator] == 0) continue;
      if (IsUnsaid(client, ratio)) continue;
      values.push_back(client[ratio.numerator] / client[ratio.denominator]);
    }
    AddStatistics(prefix + ratio.name, std::move(values), ratio.higher_is_better);
  }
}

void MetricsRow::AddStatistics(const std::string& metric, std::vector<double> values,
                               bool higher_is_better) {
  if (values.empty()) return;
  const ClientValues clients(std::move(values), higher_is_better);
  for (const ClientStatistic& statistic : kClientStatistics)
    columns_.emplace_back(StatisticName(metric, statistic.name), statistic.of(clients));
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
      AddStatistics(ColumnPrefix(of) + names[m], std::move(of_clients),
                    HigherIsBetter(ColumnPrefix(of) + names[m]));
    }
  }
}

void MetricsRow::AddRowMetrics(const EvaluationSums& sums, const EvaluationMetrics& asked) {
  const std::vector<const training::RowMetric*> metrics = training::RowMetricsOf(asked, task_);
  if (metrics.empty()) return;
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    const auto of = static_cast<EvaluatedRows>(i);
    if (IsOfClients(of) ? sums.Of(of).empty() : RowsOf(sums, of) == 0) continue;
    const training::MetricSums total = TotalOf(sums, of);
    for (const training::RowMetric* metric : metrics) {
      columns_.emplace_back(std::string(ColumnPrefix(of)) + metric->name, metric->value(total));
      if (!IsOfClients(of)) continue;
      std::vector<double> of_clients;
      for (const EvaluationSums::ClientSums& client : sums.Of(of)) {
        const double value = HasRows(client) ? metric->value(client.sums) : std::nan("");
        if (!std::isnan(value)) of_clients.push_back(value);
      }
      AddStatistics(std::string(ColumnPrefix(of)) + metric->name, std::move(of_clients),
                    metric->higher_is_better);
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

void MetricsRow::AddEvaluation(const EvaluationSums& reported, const training::ClassCounts& counts,
                               const ConceptGroups& groups, const EvaluationMetrics& asked,
                               std::span<const ClientGroups> divisions) {
  const std::optional<EvaluationSums> possible = WithPossibleLosses(reported);
  const EvaluationSums& sums = possible.has_value() ? *possible : reported;
  AddTotal(ColumnPrefix(EvaluatedRows::kCentral), {sums.central});
  AddTotal(ColumnPrefix(EvaluatedRows::kCentralValidation), {sums.validation});
  AddTotal(ColumnPrefix(EvaluatedRows::kTrain), {sums.train});
  AddBackdoor(sums.backdoor);
  const auto missing =
      static_cast<double>(sums.missing[static_cast<size_t>(EvaluatedRows::kTrain)]);
  if (!sums.train.empty() || missing > 0)
    columns_.emplace_back(absl::StrCat(ColumnPrefix(EvaluatedRows::kTrain), kMissingCount),
                          missing);
  const std::optional<double> loss = Get("clients_train_loss"), penalty = Get("l2_penalty");
  if (loss.has_value() && penalty.has_value()) {
    columns_.emplace_back("train_objective", *loss + *penalty);
  }
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    if (IsOfClients(static_cast<EvaluatedRows>(i)))
      AddClients(ColumnPrefix(static_cast<EvaluatedRows>(i)), sums.clients[i], sums.missing[i]);
  }
  AddClassMetrics(sums, counts);
  AddRowMetrics(sums, asked);
  if (groups.count() > 1) AddGroups(sums, groups);
  if (sums.Of(EvaluatedRows::kClients).empty()) return;
  for (const ClientGroups& division : divisions) {
    for (auto& column : GroupValues(task_, division, sums, reported, counts, asked))
      columns_.push_back(std::move(column));
  }
}

void MetricsRow::AddBackdoor(const std::vector<double>& sums) {
  const training::MetricSchema& schema = training::SchemaFor(task_);
  if (sums.size() != schema.sums.size()) return;
  const auto accuracy = std::ranges::find(schema.ratios, "accuracy", &training::MetricRatio::name);
  if (accuracy == schema.ratios.end()) return;
  columns_.emplace_back(kBackdoorSuccess, sums[accuracy->numerator] / sums[accuracy->denominator]);
}

void MetricsRow::AddGroups(const EvaluationSums& sums, const ConceptGroups& groups) {
  for (uint32_t group = 0; group < sums.central_groups.size(); ++group)
    AddTotal(GroupPrefix(EvaluatedRows::kCentral, group), {sums.central_groups[group]});
  std::vector<std::vector<std::vector<double>>> of_clients(groups.count());
  for (const EvaluationSums::ClientSums& client : sums.Of(EvaluatedRows::kClients)) {
    if (HasRows(client)) of_clients[groups.Of(client.client)].push_back(client.sums);
  }
  for (uint32_t group = 0; group < of_clients.size(); ++group) {
    if (sums.Of(EvaluatedRows::kClients).empty()) break;
    const std::string prefix = GroupPrefix(EvaluatedRows::kClients, group);
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
  const auto round = json.is_object() ? json.find("round") : json.end();
  if (round == json.end() || !round->is_number()) return std::nullopt;
  const auto number = round->get<double>();
  if (!(number >= 0 && number <= std::numeric_limits<uint32_t>::max())) return std::nullopt;
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
