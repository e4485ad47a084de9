#include "algorithms/local_group.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/last_layer.h"

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

ParameterSpec HeadParameter() {
  return {.name = "head",
          .default_value = "",
          .help = "globs on tensor names that are the head, \"fc.* 6.*\"; \"\": the last layer"};
}

ParameterGroup HeadOf(const Setup& setup) {
  const std::string globs = setup.Get<std::string>("head");
  return globs.empty() ? ParameterGroup::OfLastLayer(setup.layout)
                       : ParameterGroup::Matching(setup.layout, globs);
}

absl::Status CheckHead(const Setup& setup) {
  const ParameterGroup head = HeadOf(setup);
  if (head.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("head = \"", setup.Get<std::string>("head"),
                                                   "\" matches none of the model's tensors"));
  }
  if (setup.Get<std::string>("head").empty() && LastModuleIsFrozen(setup)) {
    return absl::InvalidArgumentError(
        "the head is the model's last layer, which this run freezes (model.frozen, trained, "
        "adapters): name the trained tensors that stay with each client with head = \"…\"");
  }
  if (head.everything()) {
    return absl::InvalidArgumentError(
        "the head is the whole model, so nothing would be shared: name fewer tensors with head = "
        "\"…\"");
  }
  return absl::OkStatus();
}

}  // namespace macaw::algorithms
