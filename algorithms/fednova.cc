#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/bounded_step.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// FedNova: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in
// Heterogeneous Federated Optimization", NeurIPS 2020, normalised averaging. Each client's
// displacement is divided by ‖a_i‖₁, the displacement that its optimizer would make with a constant
// gradient of 1. The trainer computes it: τ_i for plain SGD, more with momentum, less with the
// proximal term. The server's momentum is that of the authors' code (gmf): the normalised step is
// added to a buffer that decays by β.

namespace macaw::algorithms {
namespace {

LayoutPtr TauLayout() { return ParameterLayout::Scalars("tau", 1, DType::kF64); }

class FedNovaClient final : public DeltaClient {
 public:
  explicit FedNovaClient(const Setup& setup)
      : DeltaClient(setup),
        mu_(setup.Get<double>("mu")),
        count_steps_(setup.Get<std::string>("tau_eff") == "steps"),
        number_(TauLayout()) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const training::StageOutcome& outcome = outcomes[0];
    MACAW_RETURN_IF_ERROR(NeedsStepsOfSgd(outcome));
    // The normalised d_i of the paper, with the sign of a step: (y_i − x)/‖a_i‖₁.
    const double factor = outcome.steps > 0 ? 1 / outcome.a_norm1 : 1;
    const VectorView tau = workspace.Vector(number_);
    tau.As<double>()[0] = count_steps_ ? static_cast<double>(outcome.steps) : outcome.a_norm1;
    return ClientResult{
        .up = {{"direction", Update(context, outcome.end, workspace, factor)}, {"tau", tau}}};
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    stage.correction.mu = mu_;  // the paper's proximal local solver
    return stage;
  }

 private:
  const double mu_;
  const bool count_steps_;
  const LayoutPtr number_;
};

class FedNovaServer final : public MeanDeltaServer {
 public:
  FedNovaServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model), "direction"),
        beta_(setup.Get<double>("server_momentum")),
        bound_(setup.contribution_bound) {
    if (beta_ > 0) momentum_ = kept_.Vector("momentum", FlatVector(setup.layout));
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const FlatVector& tau = ChannelOf(aggregate, "tau").value;
    tau_eff_ = tau.empty() ? 0 : tau.As<double>()[0];
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }

 protected:
  void Step(double server_lr, ConstVectorView mean_direction, VectorView model) override {
    if (beta_ == 0) {
      // x −= τ_eff·Σ p_i d_i
      AddWithin(server_lr * bound_, server_lr * tau_eff_, mean_direction, model);
      return;
    }
    Scale(beta_, momentum_);
    AddWithin(bound_, tau_eff_, mean_direction, momentum_);  // m = β·m + τ_eff·Σ p_i d_i
    Axpy(server_lr, momentum_, model);
  }

 private:
  const double beta_;   // of the server's momentum; 0: none
  const double bound_;  // of a client's update: what a lie about τ_i moves a coordinate by at most
  VectorView momentum_;  // m
  double tau_eff_ = 0;   // Σ p_i ‖a_i‖₁ over the cohort
};

absl::StatusOr<Schema> FedNovaSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].name = "direction";
  schema.up.push_back(
      {.name = "tau", .layout = TauLayout(), .reduction = schema.up[0].reduction, .bound = 0x1p40});
  return schema;
}

absl::Status CheckFedNova(const Setup& setup) {
  if (setup.Get<double>("server_momentum") == 1) {
    return absl::InvalidArgumentError(
        "server_momentum must be below 1, or no step would ever be forgotten");
  }
  return NeedsSgd(setup);
}

}  // namespace

Description FedNova() {
  Description fednova = {
      .name = "fednova",
      .summary = "updates are normalised by the steps behind them, so that uneven work has no bias",
      .paper =
          "Wang et al., 2020, Tackling the Objective Inconsistency Problem in Heterogeneous "
          "Federated Optimization",
      .formula =
          "client  y ← y − η·(g + μ·(y − x))\n"
          "up      d = (y − x)/‖a‖₁, ‖a‖₁\n"
          "        ‖a‖₁: how far the client's optimizer goes if every gradient is 1, divided by η;\n"
          "        the number of steps for plain SGD with μ = 0\n"
          "server  m ← β·m + mean(‖a‖₁)·mean(d)\n"
          "        x ← x + η_g·m",
      .parameters = ServerRateParameters(),
      .remarks =
          "Where cohort.sampling is poisson, mean(d) is over the planned weight, and mean(‖a‖₁) over "
          "the weight of those who came. Under EF21 mean(d) is of all clients, of updates of several "
          "rounds, and mean(‖a‖₁) of the round's.",
      .check = CheckFedNova,
      .schema = FedNovaSchema,
      .server = MakeServer<FedNovaServer>,
      .client = MakeClient<FedNovaClient>,
  };
  fednova.parameters.push_back({.name = "mu",
                                .default_value = 0.0,
                                .help = "μ of a proximal local objective; 0: none",
                                .minimum = 0});
  fednova.parameters.push_back(
      {.name = "tau_eff",
       .default_value = "a_norm1",
       .help = "effective steps: the mean of ‖a_i‖₁, or of the steps (the authors' proximal code)",
       .choices = {"a_norm1", "steps"}});
  fednova.parameters.push_back({.name = "server_momentum",
                                .default_value = 0.0,
                                .help = "β: momentum of the server's step, below 1; 0: none",
                                .minimum = 0,
                                .maximum = 1});
  return fednova;
}

}  // namespace macaw::algorithms
