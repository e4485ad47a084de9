#include "algorithms/local_group.h"

#include "algorithms/api/vector_math.h"

namespace macaw::algorithms {

ConstVectorView LocalGroupClient::Personal(const ClientContext& context,
                                           Workspace& workspace) const {
  if (context.first_turn) return context.model();
  const VectorView personal = workspace.Vector(layout_);
  Copy(context.model(), personal);
  group_.Insert(context.State("group"), personal);
  return personal;
}

training::Stage LocalGroupClient::LocalWork(const ClientContext& context,
                                            Workspace& workspace) const {
  training::Stage stage = DeltaClient::LocalWork(context, workspace);
  stage.start = Personal(context, workspace);
  return stage;
}

absl::StatusOr<ClientResult> LocalGroupClient::Conclude(
    const ClientContext& context, std::span<const training::StageOutcome> outcomes,
    Workspace& workspace) const {
  const ConstVectorView end = outcomes.back().end;
  const VectorView own = workspace.Vector(group_.layout());
  group_.Extract(end, own);
  // The group stays with the client, so it is part neither of the update nor of its norm.
  const VectorView shared = workspace.Vector(layout_);
  Copy(end, shared);
  const VectorView broadcast_group = workspace.Vector(group_.layout());
  group_.Extract(context.model(), broadcast_group);
  group_.Insert(broadcast_group, shared);
  return ClientResult{.up = {{"delta", Delta(context, shared, workspace)}},
                      .state = {{"group", own}}};
}

Schema LocalGroupSchema(const Setup& setup, const ParameterGroup& group) {
  Schema schema = MeanDeltaSchema(setup);
  schema.state = {{"group", group.layout()}};
  return schema;
}

}  // namespace macaw::algorithms
