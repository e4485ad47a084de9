#include <algorithm>
#include <memory>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "algorithms/own_steps.h"
#include "core/status.h"
#include "training/api/hooks.h"

// APFL: Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020, algorithm 1. A
// client steps its copy y of the global model along ∇f(y), and its own v along the gradient with
// respect to v of f(v̄), v̄ = αv + (1 − α)y, which is α·∇f(v̄); both of one batch. The mixture α is
// fixed, or takes a step of its own gradient ⟨v − y, ∇f(v̄)⟩ at the first batch of a turn.
//
// The authors' code (FedTorch) mixes the two models' outputs instead of their weights, takes α's
// gradient from a mixture of both models' gradients with 0.02·α added, and the local rate for its
// step.

namespace macaw::algorithms {
namespace {

constexpr char kOwnModel[] = "apfl own", kOwnAlpha[] = "apfl mixture";

const LayoutPtr& AlphaLayout() {
  static const LayoutPtr& layout =
      *new LayoutPtr(ParameterLayout::Scalars("alpha", 1, DType::kF64));
  return layout;
}

// out ← α·v + (1 − α)·y
void MixModels(double alpha, ConstVectorView v, ConstVectorView y, VectorView out) {
  Copy(v, out);
  const auto mixed = [alpha]<typename T>(T own, T shared) {
    return static_cast<T>(alpha) * own + static_cast<T>(1 - alpha) * shared;
  };
  Map(out, mixed, y);
}

class ApflClient final : public DeltaClient {
 public:
  explicit ApflClient(const Setup& setup)
      : DeltaClient(setup),
        alpha_(setup.Get<double>("alpha")),
        alpha_lr_(setup.Get<double>("alpha_lr")) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    const VectorView v = workspace.Named(kOwnModel, layout_);
    const VectorView alpha = workspace.Named(kOwnAlpha, AlphaLayout());
    result.state = {{"personal", v}, {"alpha", alpha}};
    result.metrics = {{"alpha", alpha.As<double>()[0]}};
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    if (context.first_turn) return training::Point(context.model());
    const double alpha = context.State("alpha").As<double>()[0];
    if (alpha == 0) return training::Point(context.model());
    const VectorView mixed = workspace.Vector(layout_);
    MixModels(alpha, context.State("personal"), context.model(), mixed);
    CopyBuffers(context.State("personal"), mixed);
    return training::Point(ConstVectorView(mixed));
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const VectorView v = workspace.Named(kOwnModel, layout_);
    const VectorView alpha = workspace.Named(kOwnAlpha, AlphaLayout());
    Copy(context.first_turn ? context.model() : context.State("personal"), v);
    alpha.As<double>()[0] = context.first_turn ? alpha_ : context.State("alpha").As<double>()[0];
    Own own{.v = v,
            .alpha = alpha,
            .mixed = workspace.Vector(layout_),
            .gradient = workspace.Vector(layout_),
            .rate = stage.local.lr,
            .decay = stage.local.weight_decay,
            .first = true};
    training::Hooks hooks;
    // Leaves the step of y as it is.
    hooks.correct = [this, own](ConstVectorView y, VectorView,
                                training::StepGradients& batch) mutable { StepOwn(y, batch, own); };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  struct Own {
    VectorView v, alpha;
    VectorView mixed, gradient;  // scratch
    double rate, decay;
    bool first;  // batch of the turn
  };

  // v keeps the statistics of v̄, which its passes move.
  // v ← v − η·α·∇f(v̄), and at the first batch α ← α − η_α·⟨v − y, ∇f(v̄)⟩, of v and y before it.
  void StepOwn(ConstVectorView y, training::StepGradients& batch, Own& own) const {
    double& alpha = own.alpha.As<double>()[0];
    const double before = alpha;
    MixModels(before, own.v, y, own.mixed);
    CopyBuffers(own.v, own.mixed);
    Copy(batch.GradientAtOwn(own.mixed), own.gradient);
    CopyBuffers(own.mixed, own.v);
    Axpy(own.decay, own.mixed, own.gradient);
    ZeroBuffers(own.gradient);
    if (std::exchange(own.first, false) && alpha_lr_ > 0) {
      Subtract(own.v, y, own.mixed);
      alpha = std::clamp(before - alpha_lr_ * Dot(own.mixed, own.gradient), 0.0, 1.0);
    }
    Axpy(-own.rate * before, own.gradient, own.v);
  }

  const double alpha_;
  const double alpha_lr_;  // η_α
};

}  // namespace

Description Apfl() {
  Description apfl = LikeFedAvg();
  apfl.name = "apfl";
  apfl.summary = "APFL: FedAvg, and clients use a mixture of its model and one of their own";
  apfl.paper = "Deng et al., 2020, Adaptive Personalized Federated Learning";
  apfl.formula =
      "client  for each batch, of which g is: v̄ = α_i·v_i + (1 − α_i)·y\n"
      "          v_i ← v_i − η·α_i·g(v̄)\n"
      "          y ← y − η·g(y)\n"
      "        α_i ← α_i − η_α·⟨v_i − y, g(v̄)⟩, at the first batch of a turn, in [0, 1];\n"
      "          from the next batch on\n"
      "        v_i and α_i stay with the client, v_i starts as x; α_i·v_i + (1 − α_i)·x is what "
      "is\n"
      "        evaluated\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  apfl.remarks =
      "The common model is FedAvg's. α stays where it begins unless alpha_lr is set. The authors' "
      "code mixes the outputs of the two models and not their weights; the paper mixes weights. "
      "Batch-norm statistics of the mixture are the client's own, of its passes at the mixture.";
  apfl.has_hooks = true;
  apfl.has_personal_models = true;
  apfl.has_independent_state = true;
  apfl.passes = [](const Setup&) { return Passes(2); };
  apfl.parameters.push_back({.name = "alpha",
                             .default_value = 0.5,
                             .help = "α of a client's first turn: 0 is the common model, 1 the "
                                     "client's own",
                             .minimum = 0,
                             .maximum = 1});
  apfl.parameters.push_back({.name = "alpha_lr",
                             .default_value = 0.0,
                             .help = "η_α: rate of α's step, one a turn; 0: α is fixed",
                             .minimum = 0});
  apfl.check = NeedsOwnSteps;
  apfl.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"personal", setup.layout}, {"alpha", AlphaLayout()}};
    schema.metrics = {{.name = "alpha", .reduction = aggregation::Reduction::kMean, .bound = 1}};
    return schema;
  };
  apfl.client = MakeClient<ApflClient>;
  return apfl;
}

}  // namespace macaw::algorithms
