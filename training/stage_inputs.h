#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "training/api/trainer.h"
#include "training/objective.h"

namespace macaw::training {

// Walks through a plan's stages, finds and checks what a stage works on: the part of a trainer that
// is the same for all of them.

// The stages of a plan, one after the other, with those that LocalPlan::more adds. An added stage
// may give an earlier one's end by its view; it is turned into a StageEnd, because a trainer may
// move that end before the next stage begins. The plan must outlive this object.
class StageSequence {
 public:
  explicit StageSequence(const LocalPlan& plan) : plan_(plan) {}
  // The stage that follows those with the outcomes `before`, valid until the next call; null: the
  // plan is done.
  absl::StatusOr<const Stage*> Next(const std::vector<StageOutcome>& before);

 private:
  const LocalPlan& plan_;
  std::vector<Stage> added_;
};

// The ends of a plan's stages, for a trainer that overwrites an end when the next stage begins.
struct KeptEnds {
  LayoutPtr layout;
  std::vector<FlatVector> ends;  // by stage; kept for the next plan
};

// Runs a plan's stages by `run`, which gets the outcomes of the stages before. With `keep`, their
// ends are copied there first. Errors name the client and the stage; a ClientFault stays one.
absl::StatusOr<std::vector<StageOutcome>> RunStages(
    const LocalPlan& plan, ClientId client,
    absl::FunctionRef<absl::StatusOr<StageOutcome>(const Stage&, const std::vector<StageOutcome>&)>
        run,
    KeptEnds* keep = nullptr);

const data::Rows& RowsOf(const ClientTask& task, data::Split split);

// The objective of a stage: that of its [local], among the rows' classes alone where it masks the
// others (StageOutcome::classes is its among()).
absl::StatusOr<Objective> ObjectiveOf(const Stage& stage, TaskKind task, int64_t outputs,
                                      const data::Rows& rows);

// The vector that a point names. `before` are the outcomes of the earlier stages.
absl::StatusOr<ConstVectorView> Resolve(const Point& point,
                                        const std::vector<StageOutcome>& before);

// The sum of a correction's terms, in the model's dtype: the point itself if there is one term with
// the factor 1, else `sum`, which is allocated if empty. Requires a term. Errors name the term that
// does not fit.
absl::StatusOr<ConstVectorView> SumOf(const std::vector<Term>& terms,
                                      const std::vector<StageOutcome>& before,
                                      const models::ModelSpec& spec, FlatVector& sum);

// Checks that the vector exists, is on the CPU, and has the model's layout. `what` is its name in
// messages: "start".
absl::Status CheckVector(const models::ModelSpec& spec, ConstVectorView vector,
                         absl::string_view what);

// Checks that a stage says of each of the model's tensors whether it is trained, if of any.
absl::Status CheckTrainable(const Stage& stage, const models::ModelSpec& spec);

// Checks that there is a batch where local.steps asks for some. `steps`: BatchOrder::steps().
absl::Status CheckSteps(const LocalConfig& local, uint64_t rows, uint64_t steps);

// The error of a stage that the trainer ("fused") does not support, for the reason `why`.
// `planned`: whether it is one of LocalPlan::stages, for which "auto" finds another trainer.
absl::Status CannotDo(absl::string_view trainer, const absl::Status& why, bool planned);

// Checks that an example has `elements` of `type`, and labels as the task needs them.
absl::Status CheckRows(const data::Rows& rows, data::FeatureType type, size_t elements,
                       TaskKind task);

}  // namespace macaw::training
