#include "algorithms/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "aggregation/channel.h"
#include "core/logging.h"

namespace macaw::algorithms {
namespace {

// Bound of a client's sums: far above those of normalised features.
constexpr double kMostOfASum = 0x1p80;
constexpr char kThrownAwayMetric[] = "thrown_away";  // 1: no sums of the round are kept

}  // namespace

std::string SumsOf(Phase phase) {
  return phase == Phase(0) ? "sums" : absl::StrCat("sums", phase.value);
}

Schema StatisticsSchema(const Setup& setup, std::vector<LayoutPtr> layouts,
                        const std::vector<std::string>& metrics) {
  Schema schema{.down = {{"model", setup.layout}}, .up = {}, .state = {}};
  for (const std::string& metric : metrics) schema.metrics.push_back({metric, std::nullopt});
  schema.metrics.push_back({kThrownAwayMetric, std::nullopt});
  for (uint32_t phase = 0; phase < layouts.size(); ++phase) {
    schema.up.push_back({.name = SumsOf(Phase(phase)),
                         .layout = std::move(layouts[phase]),
                         .reduction = aggregation::Reduction::kFixedSum,
                         .bound = kMostOfASum});
    if (layouts.size() > 1) schema.up.back().phases = {Phase(phase)};
  }
  return schema;
}

Description StatisticsRule(Description rule) {
  rule.ignores = {"local.epochs",
                  "local.steps",
                  "local.batch_size",
                  "local.optimizer",
                  "local.lr",
                  "local.momentum",
                  "local.weight_decay",
                  "local.clip_norm",
                  "local.class_weights",
                  "local.label_smoothing",
                  "local.drop_last",
                  "local.shuffle",
                  "local.lr_schedule.kind",
                  "local.lr_schedule.warmup_rounds",
                  "cohort.max_weight"};
  rule.has_statistics = true;
  if (!rule.passes) rule.passes = [](const Setup&) { return Passes(0, kForward); };
  return rule;
}

training::LocalPlan StatisticsPlan(const ClientContext& context,
                                   std::shared_ptr<const training::RowStatistics> sums) {
  training::Stage stage;
  stage.kind = training::StageKind::kStatistics;
  stage.start = context.model();
  stage.local = context.local;
  stage.statistics = std::move(sums);
  return training::LocalPlan{{std::move(stage)}};
}

absl::StatusOr<training::LocalPlan> StatisticsClient::Prepare(const ClientContext& context,
                                                              Workspace&) const {
  return StatisticsPlan(context, sums_[context.phase.value]);
}

absl::StatusOr<ClientResult> StatisticsClient::Conclude(
    const ClientContext& context, std::span<const training::StageOutcome> outcomes,
    Workspace&) const {
  return ClientResult{.up = {{SumsOf(context.phase), outcomes[0].end.view()}}};
}

bool IsFinite(ConstVectorView v) {
  return DispatchDType(v.dtype(), [&]<typename T>(T) {
    return std::ranges::all_of(v.As<T>(), [](T value) { return std::isfinite(value); });
  });
}

void ReportOnSums(const ServerContext& context, absl::string_view rule, bool kept) {
  context.Report(kThrownAwayMetric, kept ? 0 : 1);
  if (kept) return;
  Logger("algorithms")
      .Warning(absl::StrCat(
          "no_solution round=", context.round.value, " rule=", rule,
          " the sums of this round's clients have no finite solution or are of less than no rows, so "
          "they are thrown away and the model stays: a client sends wrong sums, or its features are "
          "not scaled as those of the others"));
}

}  // namespace macaw::algorithms
