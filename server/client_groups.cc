#include "server/client_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/named_groups.h"
#include "server/columns.h"
#include "training/api/metrics.h"
#include "training/api/row_metrics.h"

namespace macaw::server {
namespace {

std::string WorstName(const std::string& prefix, const std::string& metric) {
  return absl::StrCat(prefix, "worst_group_", metric);
}
std::string GapName(const std::string& prefix, const std::string& metric) {
  return absl::StrCat(prefix, "group_gap_", metric);
}

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// By group: the sums over its clients with rows, and how many these are.
struct Totals {
  std::vector<training::MetricSums> sums;
  std::vector<double> clients;
};

Totals TotalsOf(TaskKind task, const ClientGroups& groups,
                const std::vector<EvaluationSums::ClientSums>& clients) {
  const size_t least = training::SchemaFor(task).sums.size();
  Totals totals{.sums = std::vector(groups.names.size(), training::MetricSums(least)),
                .clients = std::vector<double>(groups.names.size())};
  for (const EvaluationSums::ClientSums& client : clients) {
    const std::optional<uint32_t> group = groups.of(client);
    if (!group.has_value() || *group >= totals.sums.size() || client.sums.size() < least ||
        client.sums[0] == 0)
      continue;
    training::AddTo(totals.sums[*group], client.sums);
    totals.clients[*group] += 1;
  }
  return totals;
}

// A metric of all groups; NaN where it is undefined.
struct MetricOfGroups {
  std::string name;
  bool higher_is_better;
  std::vector<double> values;  // by group
  bool is_broken = false;      // a group's sum is no number, as where outputs are infinite
};

void AddRatios(TaskKind task, const Totals& totals, std::vector<MetricOfGroups>& metrics) {
  for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
    MetricOfGroups& metric =
        metrics.emplace_back(MetricOfGroups{ratio.name, ratio.higher_is_better, {}});
    for (const training::MetricSums& sums : totals.sums) {
      metric.values.push_back(sums[ratio.numerator] / sums[ratio.denominator]);  // 0/0: NaN
      metric.is_broken = metric.is_broken || std::isnan(sums[ratio.numerator]);
    }
  }
}

void AddMetricsOfClasses(const training::ClassCounts& counts,
                         const std::vector<training::SparseCounts>& of_groups, const Totals& totals,
                         std::vector<MetricOfGroups>& metrics) {
  const size_t first = metrics.size();
  for (const std::string& name : counts.names()) {
    const auto metric = std::ranges::find(training::ClassMetricList(), name,
                                          [](const auto& m) { return std::string(m.name); });
    metrics.push_back({name, metric->higher_is_better, {}});
  }
  if (metrics.size() == first) return;
  for (size_t group = 0; group < totals.sums.size(); ++group) {
    std::vector<double> values(metrics.size() - first, kUndefined);
    if (group < of_groups.size() && totals.clients[group] > 0)
      values = counts.Values(of_groups[group], totals.sums[group][0]);
    for (size_t m = 0; m < values.size(); ++m) metrics[first + m].values.push_back(values[m]);
  }
}

void AddMetricsOfRows(TaskKind task, const EvaluationMetrics& asked, const Totals& totals,
                      std::vector<MetricOfGroups>& metrics) {
  for (const training::RowMetric* row : training::RowMetricsOf(asked, task)) {
    MetricOfGroups& metric =
        metrics.emplace_back(MetricOfGroups{row->name, row->higher_is_better, {}});
    for (size_t group = 0; group < totals.sums.size(); ++group)
      metric.values.push_back(totals.clients[group] > 0 ? row->value(totals.sums[group])
                                                        : kUndefined);
  }
}

}  // namespace

std::optional<ClientGroups> GroupsByModel(uint32_t models) {
  if (models < 2) return std::nullopt;
  ClientGroups groups;
  for (uint32_t model = 0; model < models; ++model)
    groups.names.push_back(absl::StrCat("model", model));
  groups.of = [](const EvaluationSums::ClientSums& client) -> std::optional<uint32_t> {
    return client.choice;
  };
  groups.counts = &EvaluationSums::model_counts;
  return groups;
}

std::optional<ClientGroups> GroupsByName(const std::vector<std::string>& entries) {
  const absl::StatusOr<NamedGroups> named = NamedGroups::Parse(entries);
  if (!named.ok() || named->names().empty()) return std::nullopt;
  ClientGroups groups;
  for (const std::string& name : named->names())
    groups.names.push_back(absl::StrCat("group_", name));
  groups.of = [](const EvaluationSums::ClientSums& client) { return client.group; };
  groups.compared = true;
  return groups;
}

std::vector<GroupColumn> GroupColumns(TaskKind task, const ClientGroups& groups) {
  std::vector<GroupColumn> metrics;
  for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios)
    metrics.push_back({ratio.name});
  for (const training::AskedMetric& metric : training::AskedMetricsOf(task))
    metrics.push_back({metric.name, metric.name});
  const std::string prefix = ColumnPrefix(EvaluatedRows::kClients);
  std::vector<GroupColumn> columns;
  for (const std::string& name : groups.names) {
    for (const GroupColumn& metric : metrics)
      columns.push_back({absl::StrCat(prefix, name, "_", metric.name), metric.metric});
    columns.push_back({absl::StrCat(prefix, name, "_", kEvaluatedCount)});
  }
  if (!groups.compared) return columns;
  for (const GroupColumn& metric : metrics) {
    columns.push_back({WorstName(prefix, metric.name), metric.metric});
    columns.push_back({GapName(prefix, metric.name), metric.metric});
  }
  return columns;
}

std::vector<std::pair<std::string, double>> GroupValues(TaskKind task, const ClientGroups& groups,
                                                        const EvaluationSums& sums,
                                                        const EvaluationSums& reported,
                                                        const training::ClassCounts& counts,
                                                        const EvaluationMetrics& asked) {
  const std::string prefix = ColumnPrefix(EvaluatedRows::kClients);
  const Totals totals = TotalsOf(task, groups, sums.Of(EvaluatedRows::kClients));
  std::vector<MetricOfGroups> metrics;
  AddRatios(task, totals, metrics);
  AddMetricsOfClasses(counts, reported.*groups.counts,
                      TotalsOf(task, groups, reported.Of(EvaluatedRows::kClients)), metrics);
  AddMetricsOfRows(task, asked, totals, metrics);
  std::vector<std::pair<std::string, double>> columns;
  for (size_t group = 0; group < groups.names.size(); ++group) {
    const std::string start = absl::StrCat(prefix, groups.names[group], "_");
    for (const MetricOfGroups& metric : metrics)
      columns.emplace_back(start + metric.name, metric.values[group]);
    columns.emplace_back(start + kEvaluatedCount, totals.clients[group]);
  }
  if (!groups.compared) return columns;
  for (const MetricOfGroups& metric : metrics) {
    double least = kUndefined, most = kUndefined;
    for (const double value : metric.values) {
      least = std::fmin(least, value);  // of a number and NaN it is the number
      most = std::fmax(most, value);
    }
    if (metric.is_broken) least = most = kUndefined;  // that group is the worst
    columns.emplace_back(WorstName(prefix, metric.name), metric.higher_is_better ? least : most);
    columns.emplace_back(GapName(prefix, metric.name), most - least);
  }
  return columns;
}

}  // namespace macaw::server
