#include "server/columns.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/statistics.h"
#include "training/api/class_counts.h"
#include "training/api/metrics.h"
#include "training/api/row_metrics.h"

namespace macaw::server {
namespace {

// What is evaluated, by EvaluatedRows.
struct Family {
  const char* prefix;
  const char* help;
};
constexpr Family kFamilies[] = {
    {"test_", "on the central test set, in rounds whose evaluation was due"},
    {"clients_train_",
     "over every client's training rows (`evaluation.splits` with `\"train\"`), of the global model "
     "also where clients have personal ones; with `ifca` of the one that each takes"},
    {"val_", "on the central validation set (`data.central_val_fraction`)"},
    {"clients_test_",
     "over every client's own test rows, at the rule's point: a personal model (Ditto, FedBN, "
     "FedPer, FedRep, pFedMe, APFL), else the global one. With `evaluation.sample = K` over K of the "
     "clients that have such rows, drawn again after each round"},
    {"clients_test_global_",
     "where clients have personal models, the global model on the same rows"},
    {"clients_test_tuned_",
     "the same rows after `evaluation.fine_tune.steps` local steps on the client's training rows; "
     "clients without training rows are not in it"},
    {"clients_val_",
     "over every client's validation rows (`evaluation.splits` with "
     "`\"validation\"`), at the rule's point"},
    {"heldout_test_",
     "the global model on the test rows of clients that join later (`evaluation.heldout`)"},
    {"heldout_test_tuned_",
     "the same after tuning on rows of theirs (`data.heldout_tuning`); clients without such rows "
     "are not in it"}};
static_assert(std::size(kFamilies) == kEvaluatedRows);

constexpr char kPenalty[] = "l2_penalty", kObjective[] = "train_objective";

// Whether the column is of the rows that clients train on, as they train on them.
bool IsOfTraining(const MetricColumn& column) {
  return !column.of.has_value() && (absl::StartsWith(column.name, "train_") ||
                                    absl::StartsWith(column.name, "personal_train_"));
}

// MetricColumn::never.
std::string WhyNever(const MetricColumn& column, const RunPlan& run,
                     const algorithms::Description& algorithm) {
  if (algorithm.has_statistics && IsOfTraining(column)) {
    return absl::StrCat("never has a value: clients of algorithm \"", run.algorithm.name,
                        "\" send sums over their rows and train nothing");
  }
  const bool timed = column.name == "virtual_seconds" || column.name == "late";
  if (timed && !run.devices.on()) return "needs [devices], whose clock it reads";
  if (column.name == "staleness" && !run.asynchronous.on()) {
    return "needs a round.mode in which rounds do not wait for each other, and it is "
           "\"synchronous\"";
  }
  return "";
}

}  // namespace

std::optional<double> RoundValue(const PhaseReport& report, absl::string_view column) {
  const auto* const found = std::ranges::find_if(
      kRoundColumns, [&](const RoundColumn& one) { return one.name == column; });
  if (found == std::end(kRoundColumns) || !found->has(report)) return std::nullopt;
  return found->of(report);
}

const char* ColumnPrefix(EvaluatedRows rows) { return kFamilies[static_cast<size_t>(rows)].prefix; }

std::string GroupPrefix(EvaluatedRows rows, uint32_t group) {
  return absl::StrCat(ColumnPrefix(rows), "group", group, "_");
}

std::string StatisticName(const std::string& metric, const char* statistic) {
  return absl::StrCat(metric, "_", statistic);
}

std::vector<MetricColumn> MetricColumns(TaskKind task, const algorithms::Description& algorithm,
                                        const algorithms::Schema& schema, uint32_t groups,
                                        bool backdoor, std::span<const ClientGroups> divisions) {
  using Rows = EvaluatedRows;
  std::vector<MetricColumn> columns;
  const auto add_totals = [&](const std::string& prefix, std::optional<Rows> of) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios)
      columns.push_back({prefix + ratio.name, of});
    if (!of.has_value()) return;
    for (const training::AskedMetric& metric : training::AskedMetricsOf(task))
      columns.push_back({prefix + metric.name, of, false, metric.name});
  };
  const auto add_statistics = [&](const std::string& prefix, std::optional<Rows> of) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
      for (const ClientStatistic& statistic : kClientStatistics)
        columns.push_back({StatisticName(prefix + ratio.name, statistic.name), of, true});
    }
    if (!of.has_value()) return;
    for (const training::AskedMetric& metric : training::AskedMetricsOf(task)) {
      for (const ClientStatistic& statistic : kClientStatistics)
        columns.push_back(
            {StatisticName(prefix + metric.name, statistic.name), of, true, metric.name});
    }
  };
  for (const Rows of :
       {Rows::kCentral, Rows::kCentralValidation, Rows::kClients, Rows::kGlobal, Rows::kTuned,
        Rows::kValidation, Rows::kHeldout, Rows::kHeldoutTuned, Rows::kTrain}) {
    const bool common = of == Rows::kCentral || of == Rows::kCentralValidation ||
                        of == Rows::kHeldout || of == Rows::kHeldoutTuned;
    if (common && !algorithm.has_common_model) continue;
    if (of == Rows::kTrain && !algorithm.shares_models()) continue;
    if (of == Rows::kGlobal && !algorithm.has_both_models()) continue;
    add_totals(ColumnPrefix(of), of);
    if (!IsOfClients(of)) continue;
    add_statistics(ColumnPrefix(of), of);
    for (const char* count : {kEvaluatedCount, kMissingCount})
      columns.push_back({absl::StrCat(ColumnPrefix(of), count), of});
  }
  for (uint32_t group = 0; groups > 1 && group < groups; ++group) {
    for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
      if (algorithm.has_common_model)
        columns.push_back({GroupPrefix(Rows::kCentral, group) + ratio.name, Rows::kCentral});
      columns.push_back({GroupPrefix(Rows::kClients, group) + ratio.name, Rows::kClients});
    }
    columns.push_back({GroupPrefix(Rows::kClients, group) + kEvaluatedCount, Rows::kClients});
  }
  for (const ClientGroups& division : divisions) {
    for (GroupColumn& column : GroupColumns(task, division))
      columns.push_back({std::move(column.name), Rows::kClients, false, column.metric});
  }
  if (backdoor) columns.push_back({kBackdoorSuccess, Rows::kCentral});
  if (algorithm.shares_models())
    columns.push_back({absl::StrCat(ColumnPrefix(Rows::kTrain), kMissingCount), Rows::kTrain});
  if (algorithm.has_common_model) {
    columns.push_back({kPenalty, Rows::kTrain});
    columns.push_back({kObjective, Rows::kTrain});
  }
  add_totals("train_", std::nullopt);
  add_statistics("train_client_", std::nullopt);
  if (algorithm.has_personal_models && !algorithm.has_several_models) {
    add_totals("personal_train_", std::nullopt);
    add_statistics("personal_train_client_", std::nullopt);
  }
  for (const algorithms::MetricSpec& metric : schema.metrics)
    columns.push_back({"rule_" + metric.name});
  for (const aggregation::ChannelSpec& channel : schema.up)
    columns.push_back({"used_bound_" + channel.name});
  for (const RoundColumn& column : std::span(kRoundColumns).subspan(1))  // without `round`
    columns.push_back({column.name});
  return columns;
}

std::vector<ClientGroups> DivisionsOf(const RunPlan& run, size_t models) {
  std::vector<ClientGroups> divisions;
  if (std::optional<ClientGroups> groups = GroupsByModel(static_cast<uint32_t>(models)))
    divisions.push_back(*std::move(groups));
  if (std::optional<ClientGroups> groups = GroupsByName(run.evaluation.groups))
    divisions.push_back(*std::move(groups));
  return divisions;
}

std::vector<MetricColumn> ColumnsOf(const RunPlan& run, const algorithms::Description& algorithm,
                                    const algorithms::Schema& schema) {
  std::vector<MetricColumn> columns = MetricColumns(
      run.task, algorithm, schema, ConceptGroups(run.transform, run.seed).count(),
      run.attack.on() && run.attack.backdoor(), DivisionsOf(run, 1 + schema.models.size()));
  for (MetricColumn& column : columns) column.never = WhyNever(column, run, algorithm);
  return columns;
}

std::vector<ColumnHelp> DescribeColumns() {
  std::vector<ColumnHelp> all;
  for (const RoundColumn& column : kRoundColumns) all.push_back({column.name, column.help});
  all.push_back(
      {"train_*", "means over the cohort's minibatches as they were trained on, weighted by rows"});
  all.push_back({"train_client_*_STATISTIC", "over the clients of the cohort"});
  all.push_back({"personal_train_*",
                 "of a model that each client trains beside the common one "
                 "(Ditto), as `train_*`"});
  all.push_back({"personal_train_client_*_STATISTIC", "of these models, over clients"});
  all.push_back(
      {"used_bound_CHANNEL",
       "largest value sent ÷ the channel's bound; a client above 1 is left out. Where float32 is "
       "summed, values far below 10⁻¹² of the bound are rounded away"});
  all.push_back({"rule_NAME", "the rule's own metrics; `macaw algorithms NAME` lists them"});
  for (const Family& family : kFamilies)
    all.push_back({absl::StrCat(family.prefix, "*"), family.help});
  all.push_back({"clients_test_*_STATISTIC", "over clients. So in each family of clients"});
  all.push_back({"clients_test_clients",
                 "of how many clients a family is; clients without such rows are in none"});
  all.push_back(
      {"clients_test_missing",
       "clients that were asked and left out: their state cannot be read, their owner "
       "declines or is gone, or the sum of their losses is no number from 0 to 10⁵⁰, as that "
       "of most others is"});
  all.push_back(
      {kPenalty,
       "the penalty λ/2‖w‖², λ = `local.weight_decay`, w: the weights that are trained, without "
       "frozen ones"});
  all.push_back({kObjective, "`clients_train_loss` and the penalty together"});
  all.push_back({"*_mae", "regression: the mean absolute error"});
  all.push_back(
      {"*_precision",
       "binary, of class 1. Over clients, one without predictions of class 1 counts as 0"});
  all.push_back(
      {"*_recall", "binary, of class 1. Over clients, one without rows of class 1 is left out"});
  const auto add_asked = [&](const char* name, const char* help) {
    all.push_back({absl::StrCat("*_", name), absl::StrCat("with `evaluation.metrics`: ", help,
                                                          "; null where it is undefined")});
  };
  for (const training::ClassMetric& metric : training::ClassMetricList())
    add_asked(metric.name, metric.help);
  for (const training::RowMetric& metric : training::RowMetricList())
    add_asked(metric.name, metric.help);
  all.push_back(
      {"test_groupN_*",
       "by group N of `data.concept_shift`, without the metrics of `evaluation.metrics`; `test_*` "
       "are over the test set as all groups see it. So `clients_test_groupN_*`"});
  all.push_back({"clients_test_modelN_*",
                 "with `algorithm.name = \"ifca\"`: over the clients that chose model N, and how "
                 "many they are"});
  all.push_back(
      {"clients_test_group_NAME_*",
       "over the clients of a group of `evaluation.groups`, those of `evaluation.metrics` too, "
       "and how many they are"});
  all.push_back(
      {"clients_test_worst_group_*",
       "of the group that is worst off; groups without a value, such as those without rows, do not "
       "count, and it is null where a group's loss is no number"});
  all.push_back({"clients_test_group_gap_*", "by how much it is behind the best one"});
  all.push_back({kBackdoorSuccess,
                 "with `attack.kind = \"backdoor\"`: the share of the central test rows of other "
                 "classes that get the class `attack.target` once they have the trigger"});
  return all;
}

}  // namespace macaw::server
