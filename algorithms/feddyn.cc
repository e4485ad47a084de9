#include <optional>
#include <string>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// FedDyn: Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic
// Regularization", ICLR 2021, algorithm 1. A client descends L_k(θ) − ⟨g_k, θ⟩ + (α/2)‖θ − x‖²
// (the paper's local risk). `weighted` serves Σ p_k L_k: the client's α becomes α_k = α/(N·p_k).

namespace macaw::algorithms {
namespace {

class FedDynClient final : public DeltaClient {
 public:
  explicit FedDynClient(const Setup& setup)
      : DeltaClient(setup),
        alpha_(setup.Get<double>("alpha")),
        weighted_(setup.Get<bool>("weighted")),
        mean_weight_(setup.total_weight / static_cast<double>(setup.clients)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView delta = Delta(context, outcomes[0].end, workspace);  // θ_k − x
    const VectorView gradient = workspace.Vector(layout_);
    Copy(context.State("gradient"), gradient);
    Axpy(-Alpha(context), delta, gradient);  // g_k⁺ = g_k − α(θ_k − x)
    ZeroBuffers(gradient);                   // statistics have no gradient
    return ClientResult{.up = {{"delta", delta}}, .state = {{"gradient", gradient}}};
  }

  // g_k⁺ = g_k − α·(what was sent of θ_k − x), as the server's h takes it.
  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    return FollowSent(context, "gradient", "delta", -Alpha(context), result, workspace);
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    // Its gradient: g − g_k + α(θ − x).
    stage.correction = {.mu = Alpha(context),
                        .v = {{.point = context.State("gradient"), .factor = -1}}};
    return stage;
  }

 private:
  double Alpha(const ClientContext& context) const {
    return weighted_ ? alpha_ * mean_weight_ / context.weight : alpha_;
  }

  const double alpha_;
  const bool weighted_;       // the objective Σ p_k L_k, not the plain mean
  const double mean_weight_;  // W/N, so that 1/(N·p_k) = (W/N)/w_k
};

class FedDynServer final : public MeanDeltaServer {
 public:
  FedDynServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        alpha_(setup.Get<double>("alpha")),
        clients_(static_cast<double>(setup.clients)),
        h_(kept_.Vector("h", FlatVector(setup.layout))) {
    if (setup.Get<std::string>("evaluate") == "mean") {
      mean_ = kept_.Vector("mean", FlatVector::CopyOf(Model(), setup.layout));
    }
  }

  ConstVectorView Result() const override { return mean_ ? ConstVectorView(*mean_) : Model(); }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    // |S|/N: h sums over the cohort but divides by the population.
    share_ = ChannelOf(aggregate, "delta").weight / clients_;
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }

  absl::Status ForgetStates() override {
    Zero(h_);  // the mean of g_k = 0
    return absl::OkStatus();
  }

 protected:
  void Step(double, ConstVectorView mean_delta, VectorView model) override {
    Axpy(-alpha_ * share_, mean_delta, h_);  // h −= (α/N)·Σ_S(θ_k − x)
    ZeroBuffers(h_);
    Add(mean_delta, model);  // x = mean_S θ_k − h/α
    if (mean_) Copy(model, *mean_);
    Axpy(-1 / alpha_, h_, model);
  }

 private:
  const double alpha_;
  const double clients_;  // N
  double share_ = 0;
  VectorView h_;
  std::optional<VectorView> mean_;  // of the θ_k, where that is what is evaluated
};

absl::StatusOr<Schema> FedDynSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].reduction = aggregation::Reduction::kMean;                         // weighted or not
  schema.state = {{.name = "gradient", .layout = setup.layout, .summed = true}};  // in h
  return schema;
}

TotalsUsed FedDynTotals(const Setup& setup) {
  return {.clients = true, .weight = setup.Get<bool>("weighted")};
}

absl::Status CheckFedDyn(const Setup& setup) {
  if (setup.Get<double>("alpha") > 0) return NeedsPlannedCohort(setup);
  return absl::InvalidArgumentError("alpha must be above 0: the server divides by it");
}

}  // namespace

Description FedDyn() {
  return {
      .name = "feddyn",
      .summary = "each client's objective is bent so that its minimum becomes the global one",
      .paper = "Acar et al., 2021, Federated Learning Based on Dynamic Regularization",
      .formula =
          "client  y ← y − η·(g − g_i + α·(y − x))      weighted: α/(N·p_i) for α\n"
          "        g_i ← g_i − α·(y − x)                g_i: stays with the client, and starts as 0\n"
          "up      Δ = y − x\n"
          "server  h ← h − (α/N)·ΣΔ                     Σ: over the cohort; N: all clients\n"
          "        x ← x + (plain mean of Δ) − h/α",
      .parameters = {{.name = "alpha",
                      .default_value = 0.01,
                      .help = "α, above 0: strength of the pull towards x and of the linear term",
                      .minimum = 0},
                     {.name = "weighted",
                      .default_value = false,
                      .help = "the objective: true Σ p_k L_k, false the plain mean"},
                     {.name = "evaluate",
                      .default_value = "x",
                      .help = "what is evaluated and written: x, or the mean of the round's θ_k, "
                              "which lacks the last −h/α",
                      .choices = {"x", "mean"}}},
      .notes =
          [](const Setup& setup) {
            if (setup.Get<bool>("weighted")) return std::vector<std::string>();
            return PlainMeanNote(setup, "set algorithm.feddyn.weighted = true");
          },
      .state_follows_sent = true,
      .totals = FedDynTotals,
      .check = CheckFedDyn,
      .schema = FedDynSchema,
      .server = MakeServer<FedDynServer>,
      .client = MakeClient<FedDynClient>,
  };
}

}  // namespace macaw::algorithms
