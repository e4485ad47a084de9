#include "training/stage_inputs.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::training {

namespace {

void NameEnds(const std::vector<StageOutcome>& before, Stage& stage) {
  const auto name = [&before](Point& point) {
    const auto* view = std::get_if<ConstVectorView>(&point);
    if (view == nullptr || view->empty()) return;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].end.place() != view->bytes.data()) continue;
      point = StageEnd{i};
      return;
    }
  };
  name(stage.start);
  if (stage.correction.anchor.has_value()) name(*stage.correction.anchor);
  for (Term& term : stage.correction.v) name(term.point);
  for (Point& reference : stage.references) name(reference);
}

}  // namespace

absl::StatusOr<const Stage*> StageSequence::Next(const std::vector<StageOutcome>& before) {
  if (before.size() < plan_.stages.size()) return &plan_.stages[before.size()];
  const size_t index = before.size() - plan_.stages.size();
  if (index == added_.size() && plan_.more != nullptr) {
    MACAW_ASSIGN_OR_RETURN(std::vector<Stage> more, plan_.more(before));
    for (Stage& stage : more) {
      NameEnds(before, stage);
      added_.push_back(std::move(stage));
    }
  }
  return index < added_.size() ? &added_[index] : nullptr;
}

absl::StatusOr<std::vector<StageOutcome>> RunStages(
    const LocalPlan& plan, ClientId client,
    absl::FunctionRef<absl::StatusOr<StageOutcome>(const Stage&, const std::vector<StageOutcome>&)>
        run,
    KeptEnds* keep) {
  StageSequence stages(plan);
  std::vector<StageOutcome> outcomes;
  outcomes.reserve(plan.stages.size());
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const Stage* stage, stages.Next(outcomes));
    if (stage == nullptr) return outcomes;
    if (keep != nullptr && !outcomes.empty() && !outcomes.back().end.empty()) {
      const size_t last = outcomes.size() - 1;
      if (keep->ends.size() <= last) keep->ends.resize(last + 1);
      FlatVector& kept = keep->ends[last];
      if (kept.empty()) kept = FlatVector(keep->layout);
      const std::span<const std::byte> end = outcomes[last].end.view().bytes;
      std::memcpy(kept.view().bytes.data(), end.data(), end.size());
      outcomes[last].end = std::as_const(kept).view();
    }
    absl::StatusOr<StageOutcome> outcome = run(*stage, outcomes);
    if (!outcome.ok()) {
      const absl::Status status = Annotate(
          outcome.status(), absl::StrCat("client ", client.value, ": stage ", outcomes.size()));
      return IsClientFault(outcome.status()) ? ClientFault(status.message()) : status;
    }
    outcomes.push_back(*std::move(outcome));
  }
}

const data::Rows& RowsOf(const ClientTask& task, data::Split split) {
  switch (split) {
    case data::Split::kValidation:
      return task.validation;
    case data::Split::kTest:
      return task.test;
    case data::Split::kTrain:
      break;
  }
  return task.train;
}

absl::StatusOr<Objective> ObjectiveOf(const Stage& stage, TaskKind task, int64_t outputs,
                                      const data::Rows& rows) {
  MACAW_ASSIGN_OR_RETURN(Objective objective, Objective::Make(task, outputs, stage.local));
  if (!stage.masks_classes) return objective;
  if (task != TaskKind::kClassification)
    return absl::InvalidArgumentError("a stage masks classes, and the task has none");
  std::vector<bool> classes(static_cast<size_t>(outputs));
  for (uint64_t i = 0; i < rows.size(); ++i) {
    const int64_t label = rows.block.classes[rows.at(i)];
    MACAW_RETURN_IF_ERROR(objective.CheckClasses({&label, 1}));
    classes[static_cast<size_t>(label)] = true;
  }
  if (std::ranges::count(classes, false) == 0) return objective;
  return objective.Among(std::move(classes));
}

absl::StatusOr<ConstVectorView> Resolve(const Point& point,
                                        const std::vector<StageOutcome>& before) {
  if (const auto* view = std::get_if<ConstVectorView>(&point)) return *view;
  const size_t stage = std::get<StageEnd>(point).stage;
  if (stage < before.size() && !before[stage].end.empty()) {
    MACAW_RETURN_IF_ERROR(before[stage].end.Fetch());
    return before[stage].end.view();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("refers to the end of stage ", stage,
                   ", which has none: name an earlier train or gradient stage"));
}

absl::StatusOr<ConstVectorView> SumOf(const std::vector<Term>& terms,
                                      const std::vector<StageOutcome>& before,
                                      const models::ModelSpec& spec, FlatVector& sum) {
  for (size_t i = 0; i < terms.size(); ++i) {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView point, Resolve(terms[i].point, before));
    MACAW_RETURN_IF_ERROR(CheckVector(spec, point, absl::StrCat("correction v[", i, "]")));
    if (terms.size() == 1 && terms[i].factor == 1) return point;
    if (sum.empty()) sum = FlatVector(spec.layout);
    DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
      const T factor = static_cast<T>(terms[i].factor);
      const std::span<const T> from = point.As<T>();
      const std::span<T> to = sum.As<T>();
      for (size_t k = 0; k < to.size(); ++k) {
        to[k] = i == 0 ? factor * from[k] : to[k] + factor * from[k];
      }
    });
  }
  return std::as_const(sum).view();
}

absl::Status CheckVector(const models::ModelSpec& spec, ConstVectorView vector,
                         absl::string_view what) {
  if (vector.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " vector is missing or not on the CPU"));
  }
  if (vector.layout->digest() != spec.layout->digest() ||
      vector.bytes.size() != spec.layout->bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " vector has another layout than model \"", spec.name, "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckTrainable(const Stage& stage, const models::ModelSpec& spec) {
  const size_t entries = spec.layout->entries().size();
  if (stage.trainable == nullptr || stage.trainable->size() == entries) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("names ", stage.trainable->size(),
                                                 " trainable tensors, the model has ", entries));
}

absl::Status CheckSteps(const LocalConfig& local, uint64_t rows, uint64_t steps) {
  if (local.steps == 0 || steps > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "local.steps asks for ", local.steps, " steps, but ", rows, " rows make no batch of ",
      local.batch_size, local.drop_last ? " (local.drop_last)" : ""));
}

absl::Status CannotDo(absl::string_view trainer, const absl::Status& why, bool planned) {
  return absl::InvalidArgumentError(absl::StrCat(why.message(), ", which the ", trainer,
                                                 " trainer cannot do: set workers.backend to \"",
                                                 planned ? "auto" : "torch", "\""));
}

absl::Status CheckRows(const data::Rows& rows, data::FeatureType type, size_t elements,
                       TaskKind task) {
  if (rows.empty()) return absl::OkStatus();
  const data::ExampleBlock& block = rows.block;
  const size_t expected = elements * data::SizeOf(type);
  if (block.type != type || block.row_bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("an example has ", block.row_bytes,
                                                   " bytes, the model takes ", expected,
                                                   ": the data does not fit the input shape"));
  }
  if (task == TaskKind::kReconstruction) return absl::OkStatus();
  const bool regression = task == TaskKind::kRegression;
  if (regression ? block.targets == nullptr : block.classes == nullptr) {
    return absl::InvalidArgumentError(regression ? "regression needs targets, the data has classes"
                                                 : "the task needs classes, the data has targets");
  }
  return absl::OkStatus();
}

}  // namespace macaw::training
