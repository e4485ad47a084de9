#include "algorithms/mean_delta.h"

#include <utility>

#include "algorithms/api/vector_math.h"
#include "core/status.h"

namespace macaw::algorithms {

Schema MeanDeltaSchema(const Setup& setup) {
  return {.down = {{"model", setup.layout}},
          .up = {{.name = "delta",
                  .layout = setup.layout,
                  .reduction = aggregation::Reduction::kWeightedMean,
                  .bound = setup.contribution_bound}},
          .state = {}};
}

training::Stage DeltaClient::LocalWork(const ClientContext& context, Workspace&) const {
  return {.kind = training::StageKind::kTrain, .start = context.model(), .local = context.local};
}

absl::StatusOr<training::LocalPlan> DeltaClient::Prepare(const ClientContext& context,
                                                         Workspace& workspace) const {
  return training::LocalPlan{{LocalWork(context, workspace)}};
}

absl::StatusOr<ClientResult> DeltaClient::Conclude(const ClientContext& context,
                                                   std::span<const training::StageOutcome> outcomes,
                                                   Workspace& workspace) const {
  const VectorView delta = workspace.Vector(layout_);
  Subtract(outcomes[0].end, context.model(), delta);
  return ClientResult{.up = {delta}, .state = {}};
}

MeanDeltaServer::MeanDeltaServer(FlatVector model, double server_lr)
    : server_lr_(server_lr), model_(std::move(model)) {}

absl::StatusOr<AfterApply> MeanDeltaServer::Apply(Round, Phase, aggregation::Aggregate aggregate) {
  if (aggregate.channels.empty())
    return absl::InvalidArgumentError("the aggregate has no channel 'delta'");
  const FlatVector& mean_delta = aggregate.channels[0].value;
  if (mean_delta.empty()) return AfterApply::kRoundDone;  // nobody contributed: the model stays
  if (!SameLayout(mean_delta.layout().get(), model_.layout().get())) {
    return absl::InvalidArgumentError(
        "the aggregate's channel 'delta' has another layout than the model");
  }
  Step(mean_delta.view(), model_.view());
  return AfterApply::kRoundDone;
}

void MeanDeltaServer::Step(ConstVectorView mean_delta, VectorView model) {
  Axpy(server_lr_, mean_delta, model);
}

ServerState MeanDeltaServer::Save() const {
  ServerState state;
  state.vectors.emplace("model", model_.Clone());
  return state;
}

absl::Status MeanDeltaServer::Load(const ServerState& state) {
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView saved,
                         SavedVector(state, "model", *model_.layout()));
  Copy(saved, model_.view());
  return absl::OkStatus();
}

absl::StatusOr<ConstVectorView> SavedVector(const ServerState& state, const std::string& name,
                                            const ParameterLayout& layout) {
  const auto found = state.vectors.find(name);
  if (found == state.vectors.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the saved state has no vector '", name,
                                                   "': it belongs to another algorithm"));
  }
  if (found->second.empty() || !SameLayout(found->second.layout().get(), &layout)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the saved vector '", name, "' has another layout (names, shapes or dtype differ)"));
  }
  return found->second.view();
}

}  // namespace macaw::algorithms
