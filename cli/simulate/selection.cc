#include "cli/simulate/selection.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/resolve.h"
#include "cli/results/result.h"
#include "core/status.h"
#include "server/budget.h"
#include "server/early_stopping.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

// What is missing for the column to have values; null: nothing.
const char* MissingRows(const server::MetricColumn& column, const EvaluableRows& rows) {
  using Rows = server::EvaluatedRows;
  if (!column.of.has_value()) return nullptr;
  switch (*column.of) {
    case Rows::kCentral:
      return rows.central_test ? nullptr : "the data has no central test rows (data.test_fraction)";
    case Rows::kCentralValidation:
      return rows.central_val
                 ? nullptr
                 : "the data has no central validation rows (data.central_val_fraction)";
    case Rows::kClients:
    case Rows::kGlobal:
    case Rows::kTuned:
      return rows.client_test ? nullptr
                              : "no client has test rows of its own (data.client_test_fraction)";
    case Rows::kValidation:
      return rows.client_val ? nullptr : "no client has validation rows (data.val_fraction)";
    case Rows::kTrain:
    case Rows::kHeldout:
    case Rows::kHeldoutTuned:
      break;
  }
  return nullptr;
}

}  // namespace

EvaluableRows EvaluableRowsOf(const data::Dataset& dataset) {
  const data::DatasetInfo& info = dataset.info();
  EvaluableRows rows{.central_test = info.test_examples > 0, .central_val = info.val_examples > 0};
  for (ClientId client; client.value < info.clients; ++client.value) {
    rows.client_test = rows.client_test || dataset.Examples(client, data::Split::kTest) > 0;
    rows.client_val = rows.client_val || dataset.Examples(client, data::Split::kValidation) > 0;
    if (rows.client_test && rows.client_val) break;
  }
  return rows;
}

absl::StatusOr<std::vector<server::MetricColumn>> ColumnsOf(const Config& config,
                                                            const models::ModelSpec& spec,
                                                            const algorithms::Registry& registry) {
  const RunPlan& plan = config.run;
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(plan));
  MACAW_ASSIGN_OR_RETURN(const algorithms::Schema schema,
                         algorithms::MakeSchema(algorithm, algorithms::SetupOf(plan, spec.layout)));
  MACAW_RETURN_IF_ERROR(server::CheckEvaluationOf(plan, algorithm));
  return server::ColumnsOf(plan, algorithm, schema);
}

absl::Status CheckHas(const std::string& key, const std::string& metric, const RunPlan& run,
                      const std::vector<server::MetricColumn>& columns, const EvaluableRows& rows) {
  const auto column = std::ranges::find(columns, metric, &server::MetricColumn::name);
  if (column == columns.end()) {  // the error lists those that the run will have
    std::vector<server::MetricColumn> there;
    std::ranges::copy_if(columns, std::back_inserter(there),
                         [&](const auto& other) { return MissingRows(other, rows) == nullptr; });
    return server::CheckMetric(key, metric, run, there);
  }
  MACAW_RETURN_IF_ERROR(server::CheckMetric(key, metric, run, columns));
  const char* const missing = MissingRows(*column, rows);
  if (missing == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, " \"", metric, "\" will have no value: ", missing));
}

std::string UsualMetricOf(const RunPlan& run, const std::vector<server::MetricColumn>& columns,
                          const EvaluableRows& rows) {
  return server::UsualMetric([&](const std::string& metric) {
    return CheckHas("metric", metric, run, columns, rows).ok();
  });
}

absl::Status ChooseStopMetric(Config& config, const models::ModelSpec& spec,
                              const data::Dataset& dataset, const algorithms::Registry& registry) {
  server::StopRule& stop = config.node.server.stop;
  if (!stop.active() && !stop.at_least.has_value() && stop.patience == 0) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::vector<server::MetricColumn> columns,
                         ColumnsOf(config, spec, registry));
  const EvaluableRows rows = EvaluableRowsOf(dataset);
  if (!stop.active()) stop.metric = UsualMetricOf(config.run, columns, rows);
  return CheckHas("run.stop.metric", stop.metric, config.run, columns, rows);
}

std::vector<std::string> NotesOnTheEnd(const Config& config) {
  const server::StopRule& stop = config.node.server.stop;
  std::vector<std::string> notes;
  if (stop.active() && ChoosesByTestRows(stop.metric)) {
    notes.push_back(absl::StrCat("run.stop.metric: ", TestRowsChooseText(stop.metric)));
  }
  const absl::StatusOr<std::optional<server::Budget>> budget = server::BudgetOf(stop, config.run);
  if (budget.ok() && budget->has_value()) {
    notes.push_back(absl::StrCat("privacy: the run ends after round ", (*budget)->rounds, " of ",
                                 config.run.rounds, ": ", (*budget)->reason));
  }
  return notes;
}

absl::StatusOr<std::string> FixedOverSeeds(const Document& document,
                                           std::vector<Override> overrides,
                                           const std::vector<uint64_t>& seeds,
                                           const sdk::Catalogue& catalogue, Idle idle) {
  if (seeds.size() < 2) return "";
  // What is given is another seed than one that none of the runs has.
  const uint64_t other = std::ranges::max(seeds) + 1'000'003;
  overrides.push_back({"run.seed", absl::StrCat(other), "seeds"});
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, overrides, catalogue, idle));
  std::vector<std::string> fixed;
  const auto add_seed = [&](const char* key, uint64_t seed, const char* what) {
    if (seed != config.run.seed) fixed.push_back(absl::StrCat(what, " (", key, " = ", seed, ")"));
  };
  const bool torchscript = !config.node.model_script.empty();
  if (!config.node.model_init.empty() ? !InitFollowsTheSeed(config) : torchscript) {
    fixed.push_back(
        "the initial weights (model.init or model.torchscript; a path with {seed} names a file for "
        "each)");
  } else if (config.node.model_init.empty()) {
    add_seed("model.seed", config.run.model.seed, "the initial weights");
  }
  add_seed("data.seed", config.node.data.seed, "the splits");
  add_seed("partition.seed", config.node.partition.seed, "the partition");
  if (fixed.empty()) return "";
  return absl::StrCat("These are the same in every seed, so deviations do not cover them: ",
                      absl::StrJoin(fixed, ", "), ". A seed of \"run\" follows run.seed.");
}

}  // namespace macaw::cli
