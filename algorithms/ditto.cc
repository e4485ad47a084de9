#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// Ditto: Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through
// Personalization", ICML 2021, algorithm 1. FedAvg finds the global x; beside it each client keeps
// its own v_k, trained on f_k(v) + (λ/2)‖v − x‖².

namespace macaw::algorithms {
namespace {

class DittoClient final : public DeltaClient {
 public:
  explicit DittoClient(const Setup& setup)
      : DeltaClient(setup), lambda_(setup.Get<double>("lambda")) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage personal = LocalWork(context, workspace);
    personal.start = PersonalModel(context);
    personal.losses = training::Losses::kPersonal;
    // v_k ← v_k − η(∇f_k(v_k) + λ(v_k − x)), x as it came down
    personal.correction = {.mu = lambda_, .anchor = context.model()};
    return training::LocalPlan{{LocalWork(context, workspace), personal}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    result.state = {{"personal", outcomes[1].end}};
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace&) const override {
    return training::Point(PersonalModel(context));
  }

 private:
  static ConstVectorView PersonalModel(const ClientContext& context) {
    return context.first_turn ? context.model() : context.State("personal");
  }

  const double lambda_;
};

}  // namespace

Description Ditto() {
  Description ditto = LikeFedAvg();
  ditto.name = "ditto";
  ditto.summary = "FedAvg, and beside it a personal model of each client that is held near it";
  ditto.paper =
      "Li et al., 2021, Ditto: Fair and Robust Federated Learning Through Personalization";
  ditto.formula =
      "client  y ← y − η·g\n"
      "        v_i ← v_i − η·(g(v_i) + λ·(v_i − x))      v_i stays with the client, and starts as x\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  ditto.has_personal_models = true;
  ditto.has_independent_state = true;
  ditto.passes = [](const Setup&) { return Passes(2); };
  ditto.parameters.push_back({.name = "lambda",
                              .default_value = 1.0,
                              .help = "λ: pull of a personal model towards x; 0 is local training",
                              .minimum = 0});
  ditto.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"personal", setup.layout}};
    return schema;
  };
  ditto.client = MakeClient<DittoClient>;
  return ditto;
}

}  // namespace macaw::algorithms
