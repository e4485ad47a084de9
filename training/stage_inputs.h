#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "training/api/trainer.h"

namespace macaw::training {

// What a stage works on, found and checked: the half of a trainer that is the same for each.

const data::Rows& RowsOf(const ClientTask& task, data::Split split);

// The vector that a point names; `before` are the outcomes of the stages before.
absl::StatusOr<ConstVectorView> Resolve(const Point& point,
                                        const std::vector<StageOutcome>& before);

// The sum of a correction's terms, in the model's dtype: the point itself where it is one with the
// factor 1, else `sum`, which is allocated where it is empty. Requires a term; errors name the one
// that does not fit.
absl::StatusOr<ConstVectorView> SumOf(const std::vector<Term>& terms,
                                      const std::vector<StageOutcome>& before,
                                      const models::ModelSpec& spec, FlatVector& sum);

// That it is there, on the CPU, and has the model's layout. `what` names it: "start".
absl::Status CheckVector(const models::ModelSpec& spec, ConstVectorView vector,
                         absl::string_view what);

// That an example is `elements` of `type`, with labels as the task needs them.
absl::Status CheckRows(const data::Rows& rows, data::FeatureType type, size_t elements,
                       TaskKind task);

}  // namespace macaw::training
