#include "server/client_groups.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/named_groups.h"
#include "server/columns.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

std::string WorstName(const std::string& prefix, const std::string& metric) {
  return absl::StrCat(prefix, "worst_group_", metric);
}
std::string GapName(const std::string& prefix, const std::string& metric) {
  return absl::StrCat(prefix, "group_gap_", metric);
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

std::vector<std::string> GroupColumns(const std::string& prefix, TaskKind task,
                                      const ClientGroups& groups) {
  std::vector<std::string> columns;
  const training::MetricSchema& schema = training::SchemaFor(task);
  for (const std::string& name : groups.names) {
    for (const training::MetricRatio& ratio : schema.ratios)
      columns.push_back(absl::StrCat(prefix, name, "_", ratio.name));
    columns.push_back(absl::StrCat(prefix, name, "_", kEvaluatedCount));
  }
  if (!groups.compared) return columns;
  for (const training::MetricRatio& ratio : schema.ratios) {
    columns.push_back(WorstName(prefix, ratio.name));
    columns.push_back(GapName(prefix, ratio.name));
  }
  return columns;
}

std::vector<std::pair<std::string, double>> GroupValues(
    const std::string& prefix, TaskKind task, const ClientGroups& groups,
    const std::vector<EvaluationSums::ClientSums>& clients) {
  const training::MetricSchema& schema = training::SchemaFor(task);
  std::vector<training::MetricSums> sums(groups.names.size(),
                                         training::MetricSums(schema.sums.size()));
  std::vector<double> counts(groups.names.size());
  for (const EvaluationSums::ClientSums& client : clients) {
    const std::optional<uint32_t> group = groups.of(client);
    if (!group.has_value() || *group >= sums.size() || client.sums.size() < schema.sums.size() ||
        client.sums[0] == 0)
      continue;
    training::AddTo(sums[*group], client.sums);
    counts[*group] += 1;
  }
  const auto value = [&](size_t group, const training::MetricRatio& ratio) {
    return sums[group][ratio.numerator] / sums[group][ratio.denominator];  // 0/0: NaN
  };
  std::vector<std::pair<std::string, double>> columns;
  for (size_t group = 0; group < sums.size(); ++group) {
    const std::string start = absl::StrCat(prefix, groups.names[group], "_");
    for (const training::MetricRatio& ratio : schema.ratios)
      columns.emplace_back(start + ratio.name, value(group, ratio));
    columns.emplace_back(start + kEvaluatedCount, counts[group]);
  }
  if (!groups.compared) return columns;
  for (const training::MetricRatio& ratio : schema.ratios) {
    double least = std::numeric_limits<double>::quiet_NaN(), most = least;
    for (size_t group = 0; group < sums.size(); ++group) {
      const double of_group = value(group, ratio);
      least = std::fmin(least, of_group);  // of a number and NaN it is the number
      most = std::fmax(most, of_group);
    }
    columns.emplace_back(WorstName(prefix, ratio.name), ratio.higher_is_better ? least : most);
    columns.emplace_back(GapName(prefix, ratio.name), most - least);
  }
  return columns;
}

}  // namespace macaw::server
