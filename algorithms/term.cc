#include <cmath>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/bounded_step.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// TERM: Li, Beirami, Sanjabi, Smith, "Tilted Empirical Risk Minimization", ICLR 2021, with the
// clients as its groups. The objective is (1/t)·log Σ p_i e^{t·f_i(x)}, and its gradient the mean
// of the ∇f_i, weighted by p_i·e^{t·f_i(x)} (lemma 1). The weights are of the round's x and of the
// clients that came. Phase 0 finds the largest t·f_i, which is taken out of every exponent: it
// cancels, and no power is above 1.

namespace macaw::algorithms {
namespace {

constexpr Phase kLosses{0}, kTraining{1};
constexpr char kTilt[] = "tilt";             // t·f_i(x)
constexpr char kLargest[] = "largest_tilt";  // the largest of the cohort
constexpr char kPower[] = "power";           // e^{t·f_i(x) − largest}
constexpr char kTiltedLoss[] = "tilted_loss";

// One number, a buffer: an attack leaves it as it is.
const LayoutPtr& TiltLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = kTilt, .shape = {1}, .group = Group::kBuffer}}, DType::kF64));
  return layout;
}

class TermClient final : public DeltaClient {
 public:
  explicit TermClient(const Setup& setup) : DeltaClient(setup), t_(setup.Get<double>("t")) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    const training::Stage loss = LossAtStart(context, workspace);
    if (context.phase == kLosses) return training::LocalPlan{{loss}};
    return training::LocalPlan{{loss, LocalWork(context, workspace)}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const training::MetricSums& sums = outcomes[0].sums;
    const double tilt = t_ * (sums[1] / sums[0]);
    const VectorView number = workspace.Vector(TiltLayout());
    if (context.phase == kLosses) {
      number.As<double>()[0] = tilt;
      return ClientResult{.up = {{kTilt, number}}};
    }
    const double power = std::exp(tilt - context.Down(kLargest).As<double>()[0]);
    number.As<double>()[0] = power;
    const VectorView delta = Delta(context, outcomes[1].end, workspace);
    ScaleParameters(power, delta);
    return ClientResult{.up = {{"delta", delta}, {kPower, number}}};
  }

 private:
  const double t_;
};

class TermServer final : public MeanDeltaServer {
 public:
  TermServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        t_(setup.Get<double>("t")),
        bound_(setup.contribution_bound),
        largest_(TiltLayout()) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}, {kLargest, largest_.view()}};
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (context.phase == kLosses) {
      if (aggregate.clients == 0) return AfterApply::kRoundDone;
      largest_ = std::move(ChannelOf(aggregate, kTilt).value);
      return AfterApply::kNextPhase;
    }
    const FlatVector& power = ChannelOf(aggregate, kPower).value;
    mean_power_ = power.empty() ? 0 : power.As<double>()[0];
    // 0: those with a large loss are lost, and the others' powers are below the smallest number.
    // Below 0: a client lies.
    if (mean_power_ <= 0) return AfterApply::kRoundDone;
    if (t_ != 0)
      context.Report(kTiltedLoss, (largest_.As<double>()[0] + std::log(mean_power_)) / t_);
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }

 protected:
  void Step(double server_lr, ConstVectorView mean_delta, VectorView model) override {
    // x += η_g·Σ p_i e^{…} Δ_i/Σ p_i e^{…}
    AddWithin(server_lr * bound_, server_lr / mean_power_, mean_delta, model);
  }

 private:
  const double t_;
  const double bound_;     // of an update: what a lie about a power moves a coordinate by at most
  FlatVector largest_;     // used within a round, so it is not saved
  double mean_power_ = 0;  // Σ p_i e^{t·f_i − largest}
};

absl::StatusOr<Schema> TermSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  schema.up[0].phases = {kTraining};
  schema.up.push_back({.name = kTilt,
                       .layout = TiltLayout(),
                       .reduction = aggregation::Reduction::kMax,
                       .bound = 0x1p100,
                       .phases = {kLosses}});
  // It is at most 1: the loss is that of phase 0.
  schema.up.push_back({.name = kPower,
                       .layout = TiltLayout(),
                       .reduction = schema.up[0].reduction,
                       .bound = 2,
                       .phases = {kTraining}});
  schema.down.push_back({kLargest, TiltLayout(), {kTraining}});
  if (setup.Get<double>("t") != 0)
    schema.metrics = {{.name = kTiltedLoss, .reduction = std::nullopt}};
  return schema;
}

}  // namespace

Description Term() {
  Description term = {
      .name = "term",
      .summary =
          "TERM: clients weigh by e^(t·loss), which attends to the worst off, or with t < 0 to the "
          "best",
      .paper = "Li et al., 2021, Tilted Empirical Risk Minimization",
      .formula =
          "phase 0  up t·f_i(x); m: the largest\n"
          "phase 1  a = e^(t·f_i(x) − m); y ← y − η·g\n"
          "up       a·(y − x), a\n"
          "server   x ← x + η_g·mean(a·(y − x))/mean(a)\n"
          "         it minimises (1/t)·log Σ p_i·e^(t·f_i(x))      p_i: the client's share",
      .parameters = ServerRateParameters(),
      .remarks =
          "t = 0 is FedAvg. f_i is over all rows of the client, by a pass of its own in each of "
          "the two phases. The paper's stochastic algorithm keeps a moving average of the tilted "
          "loss instead, since it draws single rows; here the weights are those of the round's x. "
          "With t < 0 clients with a large loss count less, which is for hostile or broken "
          "clients: start from a model that has learnt something. Under EF21 with drawn cohorts the "
          "mean of a·(y − x) is of all clients, of updates of several rounds, and the mean of a is "
          "of the round's.",
      .passes = [](const Setup&) { return Passes(1, 2 * kForward); },
      .check = NeedsPlannedCohort,
      .schema = TermSchema,
      .server = MakeServer<TermServer>,
      .client = MakeClient<TermClient>,
  };
  term.parameters.push_back(
      {.name = "t",
       .default_value = 1.0,
       .help = "t, the tilt: 0 is FedAvg, towards ∞ the largest loss, towards −∞ the smallest"});
  return term;
}

}  // namespace macaw::algorithms
