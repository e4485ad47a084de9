#include "training/statistics_trainer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/status.h"
#include "core/work_counter.h"
#include "training/api/row_statistics.h"
#include "training/objective.h"
#include "training/stage_inputs.h"

namespace macaw::training {
namespace {

constexpr size_t kRowsAtOnce = 64;

bool IsStatistics(const Stage& stage) { return stage.kind == StageKind::kStatistics; }

}  // namespace

StatisticsTrainer::StatisticsTrainer(const TrainerSetup& setup, std::unique_ptr<LocalTrainer> inner)
    : setup_(setup),
      inner_(std::move(inner)),
      gather_(setup.feature_type, setup.spec.input_shape, setup.transform, DType::kF64),
      features_(kRowsAtOnce * gather_.example_bytes()),
      targets_(kRowsAtOnce * sizeof(double)) {}

TurnOutcome StatisticsTrainer::Run(const LocalPlan& plan, const ClientTask& task) {
  if (!std::ranges::any_of(plan.stages, IsStatistics)) return inner_->Run(plan, task);
  if (!std::ranges::all_of(plan.stages, IsStatistics))
    return absl::InternalError("a plan mixes statistics with other stages");
  ends_.resize(std::max(ends_.size(), plan.stages.size()));
  return RunStages({.stages = plan.stages}, task.client,
                   [&](const Stage& stage, const std::vector<StageOutcome>& before) {
                     return Sum(stage, before, task);
                   });
}

absl::StatusOr<StageOutcome> StatisticsTrainer::Sum(const Stage& stage,
                                                    const std::vector<StageOutcome>& before,
                                                    const ClientTask& task) {
  const data::Rows& rows = RowsOf(task, stage.rows);
  MACAW_RETURN_IF_ERROR(
      CheckRows(rows, setup_.feature_type, gather_.example_elements(), setup_.task));
  MACAW_ASSIGN_OR_RETURN(const Objective objective,
                         Objective::Make(setup_.task, setup_.spec.outputs, setup_.local));
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView at, Resolve(stage.start, before));
  FlatVector& end = ends_[before.size()];
  if (end.empty() || end.layout() != stage.statistics->layout())
    end = FlatVector(stage.statistics->layout());
  std::memset(end.view().bytes.data(), 0, end.view().bytes.size());
  const bool regression = setup_.task == TaskKind::kRegression;
  const bool labelled = !regression && setup_.task != TaskKind::kReconstruction;
  for (uint64_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    if (setup_.work != nullptr) setup_.work->Count();
    const size_t count = std::min<uint64_t>(kRowsAtOnce, rows.size() - first);
    positions_.resize(count);
    std::iota(positions_.begin(), positions_.end(), static_cast<uint32_t>(first));
    classes_.resize(labelled ? count : 0);
    const size_t width = gather_.example_elements();
    gather_.Gather(rows, positions_, nullptr,
                   features_.bytes().first(count * gather_.example_bytes()), classes_,
                   targets_.bytes().first(regression ? count * sizeof(double) : 0));
    MACAW_RETURN_IF_ERROR(objective.CheckClasses(classes_));
    stage.statistics->Add({.width = width,
                           .features = features_.As<double>().first(count * width),
                           .classes = classes_,
                           .targets = targets_.As<double>().first(regression ? count : 0)},
                          at, end.view());
  }
  StageOutcome outcome{.examples = rows.size(), .sums = MetricSums(objective.metrics())};
  outcome.end = end.view();
  return outcome;
}

}  // namespace macaw::training
