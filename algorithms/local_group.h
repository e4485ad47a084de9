#pragma once

#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "algorithms/api/parameter_group.h"
#include "algorithms/mean_delta.h"

namespace macaw::algorithms {

// A client whose group is personal: it trains from x with its own group inserted, sends zeros for
// the group, keeps the group as its state, and is evaluated with it. Before its first training it
// uses the broadcast's group.
class LocalGroupClient : public DeltaClient {
 public:
  LocalGroupClient(const Setup& setup, ParameterGroup group)
      : DeltaClient(setup), group_(std::move(group)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override;
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return training::Point(Personal(context, workspace));
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override;
  // x with the client's own group inserted.
  ConstVectorView Personal(const ClientContext& context, Workspace& workspace) const;

  const ParameterGroup group_;
};

// MeanDeltaSchema, with the group as client state.
Schema LocalGroupSchema(const Setup& setup, const ParameterGroup& group);

// For rules whose group is the model's head: the parameter `head`, the tensors that it names, and
// a refusal of one that names none or all.
ParameterSpec HeadParameter();
ParameterGroup HeadOf(const Setup& setup);
absl::Status CheckHead(const Setup& setup);

}  // namespace macaw::algorithms
