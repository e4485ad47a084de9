#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled
// Averaging for Federated Learning", ICML 2020, algorithm 1. Control variates start at zero. With
// `weighted` the objective is F = Σ p_i f_i and both means are weighted; weighting x by n_i and c
// by 1/N would converge to neither optimum.

namespace macaw::algorithms {
namespace {

class ScaffoldClient final : public DeltaClient {
 public:
  explicit ScaffoldClient(const Setup& setup)
      : DeltaClient(setup), option_one_(setup.Get<int64_t>("option") == 1) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage steps = LocalWork(context, workspace);
    const ConstVectorView c = context.Down("control"), c_i = context.State("control");
    // local step: y ← y − η(g − c_i + c)
    steps.correction.v = {{.point = c}, {.point = c_i, .factor = -1}};
    training::LocalPlan plan{{steps}};
    if (option_one_)
      plan.stages.push_back({.kind = training::StageKind::kGradient,
                             .start = context.model(),
                             .local = context.local});
    return plan;
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView delta = Delta(context, outcomes[0].end, workspace);
    const ConstVectorView c = context.Down("control"), c_i = context.State("control");
    const VectorView control = workspace.Vector(layout_);  // c_i⁺, by the paper's options
    if (option_one_) {
      Copy(outcomes[1].end, control);        // (i): ∇f_i(x)
    } else if (outcomes[0].rate_sum == 0) {  // no steps, or a rate of 0: nothing was learnt of ∇f_i
      Copy(c_i, control);
    } else {  // (ii): c_i − c + (x − y_i)/(K_i·η), with the K_i·η of the steps taken
      const training::StageOutcome& steps = outcomes[0];
      MACAW_RETURN_IF_ERROR(NeedsStepsOfSgd(steps));
      // With momentum each gradient moves the model by more than one step: K_i becomes ‖a‖₁
      // (FedNova).
      const double travelled = steps.rate_sum * (steps.a_norm1 / static_cast<double>(steps.steps));
      Subtract(c_i, c, control);
      Axpy(-1 / travelled, delta, control);
    }
    ZeroBuffers(control);  // statistics have no gradient
    const VectorView change = workspace.Vector(layout_);
    Subtract(control, c_i, change);
    return ClientResult{.up = {{"delta", delta}, {"control_change", change}},
                        .state = {{"control", control}}};
  }

  // c_i⁺ = c_i + what was sent of Δc_i: the server's c stays the mean of the c_i.
  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    return FollowSent(context, "control", "control_change", 1, result, workspace);
  }

 private:
  const bool option_one_;
};

class ScaffoldServer final : public MeanDeltaServer {
 public:
  ScaffoldServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        weighted_(setup.Get<bool>("weighted")),
        total_weight_(setup.total_weight),
        control_(kept_.Vector("control", FlatVector(setup.layout))) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}, {"control", control_}};
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const aggregation::AggregatedChannel change = std::move(ChannelOf(aggregate, "control_change"));
    MACAW_RETURN_IF_ERROR(MeanDeltaServer::Apply(context, std::move(aggregate)).status());
    // The server's control: c += ΣΔc_i/N; if weighted, c += Σ p_i Δc_i over the cohort, with p_i
    // relative to all clients.
    if (!weighted_) {
      Add(change.value.view(), control_);
    } else if (!change.value.empty()) {
      Axpy(change.weight / total_weight_, change.value.view(), control_);
    }
    return AfterApply::kRoundDone;
  }

  absl::Status ForgetStates() override {
    Zero(control_);  // the mean of c_i = 0
    return absl::OkStatus();
  }

 private:
  const bool weighted_;        // the objective Σ p_i f_i, not the plain mean
  const double total_weight_;  // W, so that p_i = w_i/W
  VectorView control_;         // c
};

absl::StatusOr<Schema> ScaffoldSchema(const Setup& setup) {
  using aggregation::Reduction;
  const bool weighted = setup.Get<bool>("weighted");
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].reduction = weighted ? Reduction::kWeightedMean : Reduction::kMean;
  schema.down.push_back({"control", setup.layout});
  schema.up.push_back({.name = "control_change",
                       .layout = setup.layout,
                       .reduction = weighted ? Reduction::kWeightedMean : Reduction::kFixedSum,
                       .bound = setup.contribution_bound,
                       .divisor = static_cast<double>(setup.clients)});
  schema.state = {{.name = "control", .layout = setup.layout, .summed = true}};  // in c
  return schema;
}

TotalsUsed ScaffoldTotals(const Setup& setup) {
  const bool weighted = setup.Get<bool>("weighted");
  return {.clients = !weighted, .weight = weighted};
}

absl::Status CheckScaffold(const Setup& setup) {
  if (setup.Get<int64_t>("option") == 2) MACAW_RETURN_IF_ERROR(NeedsGradientClip(setup));
  MACAW_RETURN_IF_ERROR(NeedsSgd(setup));
  return NeedsPlannedCohort(setup);
}

}  // namespace

Description Scaffold() {
  Description scaffold = {
      .name = "scaffold",
      .summary = "control variates take the clients' drift out of their steps",
      .paper =
          "Karimireddy et al., 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated "
          "Learning",
      .formula =
          "client    y ← y − η·(g − c_i + c)\n"
          "option 1  c_i⁺ = ∇f_i(x)\n"
          "option 2  c_i⁺ = c_i − c + (x − y)/(K·η)      K: the steps; ‖a‖₁ with momentum, as FedNova\n"
          "up        Δ = y − x, Δc = c_i⁺ − c_i\n"
          "server    x ← x + η_g·(plain mean of Δ)\n"
          "          c ← c + ΣΔc/N                       Σ: over the cohort; N: all clients\n"
          "weighted  x ← x + η_g·mean(Δ)\n"
          "          c ← c + Σ p_i·Δc                    p_i: the client's share of all clients' weight",
      .parameters = ServerRateParameters(),
      .remarks =
          "Option 2 is unstable where controls are stale: a client that takes part in few "
          "rounds, for several local epochs each, corrects all of its steps by a c_i of many "
          "rounds ago, and what it overshoots becomes its next c_i. With a small part of the "
          "clients in a round and many local epochs take option = 1 (one more pass over the "
          "client's rows), fewer epochs or a smaller local.lr. On examples/mnist10k.toml with "
          "cohort.size = 50 of 1,000 clients and 5 epochs, option 2 ends at 9.6 % accuracy "
          "and option 1 at 94.4 %. On the quick start both options diverge, since a client takes "
          "part in one round of ten. Option 1 is the unstable one where clients have a few classes "
          "each: a gradient at x, before the client adapts, is large, and is subtracted from "
          "steps that no longer need it. With 40 clients of a few digits each, 10 in a round, 2 "
          "epochs (./dev bench personal labels), option 1 ends at 18 % and option 2 at 96 %.",
      .notes =
          [](const Setup& setup) {
            if (setup.Get<bool>("weighted")) return std::vector<std::string>();
            return PlainMeanNote(setup, "set algorithm.scaffold.weighted = true");
          },
      .state_follows_sent = true,
      .totals = ScaffoldTotals,
      .passes =
          [](const Setup& setup) { return Passes(1, setup.Get<int64_t>("option") == 1 ? 1 : 0); },
      .check = CheckScaffold,
      .schema = ScaffoldSchema,
      .server = MakeServer<ScaffoldServer>,
      .client = MakeClient<ScaffoldClient>,
  };
  scaffold.parameters.push_back(
      {.name = "option",
       .default_value = int64_t{2},
       .help = "c_i from 1: a full gradient at x, one more pass; 2: the steps already taken (see "
               "the remark on when each is unstable)",
       .minimum = 1,
       .maximum = 2});
  scaffold.parameters.push_back({.name = "weighted",
                                 .default_value = false,
                                 .help = "the objective: true Σ p_i f_i, false the plain mean"});
  return scaffold;
}

}  // namespace macaw::algorithms
