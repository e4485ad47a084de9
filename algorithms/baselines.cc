#include <cmath>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/kept_state.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// The two baselines of a federated rule. Local training: every client trains for itself, on its own
// rows. Pooled training: one client has all rows. Both are used by
// Li, Hu, Beirami, Smith, "Ditto", ICML 2021, and of most papers on personalization.

namespace macaw::algorithms {
namespace {

// v_k: the client's own model, which starts as the run's initial model.
class OwnModelClient final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView moved = workspace.Vector(layout_);
    Subtract(outcomes[0].end, context.model(), moved);
    ClientResult result;
    result.state = {{"own", outcomes[0].end}};
    result.metrics = {{"distance", std::sqrt(SquaredNorm(moved))}};
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace&) const override {
    return training::Point(OwnModel(context));
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    stage.start = OwnModel(context);
    return stage;
  }

 private:
  static ConstVectorView OwnModel(const ClientContext& context) {
    return context.first_turn ? context.model() : context.State("own");
  }
};

// Sends the initial model, and learns nothing.
class InitialModelServer final : public ServerAlgorithm {
 public:
  InitialModelServer(const Setup&, FlatVector model)
      : model_(kept_.Vector("model", std::move(model))) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}};
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext&, aggregation::Aggregate) override {
    return AfterApply::kRoundDone;
  }
  ConstVectorView Model() const override { return model_; }
  ServerState Save() const override { return kept_.Save(); }
  absl::Status Load(const ServerState& state) override { return kept_.Load(state); }

 private:
  KeptState kept_;
  const VectorView model_;
};

std::vector<std::string> LocalNotes(const Setup& setup) {
  if (setup.cohort.size >= setup.clients) return {};
  return {absl::StrCat(
      "local trains the ", setup.cohort.size, " of ", setup.clients,
      " clients that are drawn in a round; those that were never drawn are tested with "
      "the initial model")};
}

absl::Status HasOneClient(const Setup& setup) {
  if (setup.clients <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("pooled trains one client that has all training rows, and here ", setup.clients,
                   " clients have rows of their own: it is for simulations, which divide the data "
                   "themselves (partition.train_together)"));
}

}  // namespace

Description Local() {
  Description local;
  local.name = "local";
  local.summary =
      "each client trains a model of its own and shares nothing: a floor to compare with";
  local.paper = "the baseline of most papers on personalization, such as Li et al., 2021, Ditto";
  local.formula =
      "client  v_i ← v_i − η·g(v_i)      v_i stays with the client, and starts as the initial model\n"
      "server  nothing: no model is shared";
  local.remarks =
      "There is no common model: test_* has no meaning and is left out. Set evaluation.clients = "
      "true. As many rounds as for the rule that it is compared with give a client as many local "
      "steps.";
  local.has_personal_models = true;
  local.has_common_model = false;
  local.has_independent_state = true;
  local.notes = LocalNotes;
  local.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema;
    schema.down = {{"model", setup.layout}};
    schema.state = {{"own", setup.layout}};
    // The mean of ‖v_k − x⁰‖ over the clients of the round. The parameters only.
    schema.metrics = {{"distance", aggregation::Reduction::kMean}};
    return schema;
  };
  local.server = MakeServer<InitialModelServer>;
  local.client = MakeClient<OwnModelClient>;
  return local;
}

Description Pooled() {
  Description pooled = LikeFedAvg();
  pooled.name = "pooled";
  pooled.summary = "one client trains on all training rows: a ceiling to compare with";
  pooled.paper = "the baseline of most papers on federated learning";
  pooled.formula =
      "client  y ← y − η·g               on the rows of all clients\n"
      "server  x ← y";
  pooled.parameters.clear();
  pooled.remarks =
      "For simulations only. A round is local.epochs passes over all training rows, or local.steps "
      "steps; the optimizer's state starts afresh each round. Test rows stay with their clients.";
  pooled.pools_clients = true;
  pooled.check = HasOneClient;
  return pooled;
}

}  // namespace macaw::algorithms
