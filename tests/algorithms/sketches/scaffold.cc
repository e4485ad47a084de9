#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "tests/algorithms/sketches/sketches.h"

// SCAFFOLD: Karimireddy et al., ICML 2020, algorithm 1, options I and II; `weighted` is the form
// for Σ p_i f_i.

namespace macaw::algorithms::sketches {
namespace {

class ScaffoldClient final : public DeltaClient {
 public:
  explicit ScaffoldClient(const Setup& setup)
      : DeltaClient(setup),
        full_gradient_(setup.Get<int64_t>("option") == 1),
        weighted_(setup.Get<bool>("weighted")) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::LocalPlan plan{{LocalWork(context, workspace)}};
    if (full_gradient_)
      plan.stages.push_back({.kind = training::StageKind::kGradient, .start = context.model()});
    return plan;
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    const VectorView next = workspace.Vector(layout_);  // c_i⁺
    if (full_gradient_) {
      Copy(outcomes[1].end, next);
    } else {  // c_i − c + (x − y_i)/(K_i·η)
      Subtract(context.state[0], context.broadcast[1], next);
      Axpy(-1 / outcomes[0].rate_sum, result.up[0], next);
    }
    const VectorView change = workspace.Vector(layout_);
    Subtract(next, context.state[0], change);
    if (weighted_) Scale(context.weight, change);
    result.up.push_back(change);
    result.state = {next};
    return result;
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const VectorView v = workspace.Vector(layout_);
    Subtract(context.broadcast[1], context.state[0], v);
    stage.correction.v = v;
    return stage;
  }

 private:
  const bool full_gradient_;
  const bool weighted_;
};

class ScaffoldServer final : public MeanDeltaServer {
 public:
  ScaffoldServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(std::move(model), setup.Get<double>("server_lr")), control_(setup.layout) {}

  std::vector<ConstVectorView> Configure(Round, Phase) const override {
    return {Model(), control_.view()};
  }

  absl::StatusOr<AfterApply> Apply(Round round, Phase phase,
                                   aggregation::Aggregate aggregate) override {
    algorithms::Add(aggregate.channels[1].value.view(), control_.view());
    return MeanDeltaServer::Apply(round, phase, std::move(aggregate));
  }

  ServerState Save() const override {
    ServerState state = MeanDeltaServer::Save();
    state.vectors.emplace("control", control_.Clone());
    return state;
  }

  absl::Status Load(const ServerState& state) override {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView control,
                           SavedVector(state, "control", *control_.layout()));
    MACAW_RETURN_IF_ERROR(MeanDeltaServer::Load(state));
    Copy(control, control_.view());
    return absl::OkStatus();
  }

 private:
  FlatVector control_;  // c
};

}  // namespace

Description Scaffold() {
  Description scaffold = FedAvg();
  scaffold.name = "scaffold";
  scaffold.parameters.push_back(
      {.name = "option", .default_value = int64_t{2}, .minimum = 1, .maximum = 2});
  scaffold.parameters.push_back({.name = "weighted", .default_value = false});
  scaffold.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    using aggregation::Reduction;
    const bool weighted = setup.Get<bool>("weighted");
    Schema schema = MeanDeltaSchema(setup);
    schema.up[0].reduction = weighted ? Reduction::kWeightedMean : Reduction::kMean;
    schema.down.push_back({"control", setup.layout});
    schema.up.push_back(
        {.name = "control_change",
         .layout = setup.layout,
         .reduction = Reduction::kFixedSum,
         .divisor = weighted ? setup.total_weight : static_cast<double>(setup.clients)});
    schema.state = {{"control", setup.layout}};
    return schema;
  };
  scaffold.server = [](const Setup& setup,
                       FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    return std::make_unique<ScaffoldServer>(setup, std::move(model));
  };
  scaffold.client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return std::make_unique<ScaffoldClient>(setup);
  };
  return scaffold;
}

}  // namespace macaw::algorithms::sketches
