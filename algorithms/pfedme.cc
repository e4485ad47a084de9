#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "algorithms/own_steps.h"
#include "core/status.h"
#include "training/api/hooks.h"

// pFedMe: T. Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS
// 2020, algorithm 1. The global objective is the mean of the envelopes
// F_i(w) = min_θ f_i(θ) + (λ/2)‖θ − w‖², whose gradient is λ(w − θ_i(w)). For each mini-batch a
// client takes K steps of θ towards that minimum, all on this batch, and one step of w. The
// server's β is server_lr: (1 − β)x + β·mean(w) = x + β·mean(w − x).
//
// As in the authors' code θ begins a turn as x and goes on from batch to batch. That code adds
// 0.001·θ to the gradient of θ; here local.weight_decay does.

namespace macaw::algorithms {
namespace {

constexpr char kTheta[] = "pfedme theta";

class PFedMeClient final : public DeltaClient {
 public:
  explicit PFedMeClient(const Setup& setup)
      : DeltaClient(setup),
        lambda_(setup.Get<double>("lambda")),
        rate_(setup.Get<double>("personal_lr")),
        steps_(setup.Get<int64_t>("personal_steps")) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    const VectorView theta = workspace.Named(kTheta, layout_);
    result.state = {{"personal", theta}};
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace&) const override {
    return training::Point(context.first_turn ? context.model() : context.State("personal"));
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const double decay = std::exchange(stage.local.weight_decay, 0.0);
    const VectorView theta = workspace.Named(kTheta, layout_);
    const VectorView before = workspace.Vector(layout_);
    Copy(context.model(), theta);
    training::Hooks hooks;
    hooks.correct = [this, decay, theta, before](ConstVectorView w, VectorView g,
                                                 training::StepGradients& batch) {
      for (int64_t k = 0; k < steps_; ++k) Approach(w, decay, batch, theta, before);
      // w ← w − η·λ(w − θ)
      const auto envelope = [this]<typename T>(T, T at, T near) {
        return static_cast<T>(lambda_) * (at - near);
      };
      Map(g, envelope, w, theta);
      ZeroBuffers(g);
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  // θ ← θ − ρ·(∇f(θ) + decay·θ + λ(θ − w)), ∇f of the batch. θ's statistics move by its own
  // passes. `before` is scratch.
  void Approach(ConstVectorView w, double decay, training::StepGradients& batch, VectorView theta,
                VectorView before) const {
    const auto step = [this, decay]<typename T>(T at, T gradient, T near) {
      return at - static_cast<T>(rate_) * (gradient + static_cast<T>(decay) * at +
                                           static_cast<T>(lambda_) * (at - near));
    };
    const ConstVectorView gradient = batch.GradientAtOwn(theta);
    Copy(theta, before);
    Map(theta, step, gradient, w);
    CopyBuffers(before, theta);
  }

  const double lambda_;
  const double rate_;    // ρ
  const int64_t steps_;  // K
};

absl::Status CheckPFedMe(const Setup& setup) {
  const double lambda = setup.Get<double>("lambda"), rate = setup.Get<double>("personal_lr");
  if (lambda <= 0) {
    return absl::InvalidArgumentError(
        "lambda must be above 0: w moves by λ(w − θ). For local training take the rule local");
  }
  if (lambda * rate >= 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("personal_lr * lambda = ", lambda * rate,
                     ", and from 2 on the steps of θ diverge whatever the loss is: lower one"));
  }
  return NeedsOwnSteps(setup);
}

}  // namespace

Description PFedMe() {
  Description pfedme = LikeFedAvg();
  pfedme.name = "pfedme";
  pfedme.summary = "personal models near a common one that moves to where they are (pFedMe)";
  pfedme.paper = "T. Dinh et al., 2020, Personalized Federated Learning with Moreau Envelopes";
  pfedme.formula =
      "client  for each batch, of which g is, from w = θ = x:\n"
      "          θ ← θ − ρ·(g(θ) + λ·(θ − w))      personal_steps times\n"
      "          w ← w − η·λ·(w − θ)\n"
      "        θ stays with the client, and is what is evaluated\n"
      "up      Δ = w − x\n"
      "server  x ← x + η_g·mean(Δ)                 η_g is the paper's β";
  pfedme.remarks =
      "A batch costs personal_steps + 1 gradients. ρ is constant, whatever local.lr_schedule says. "
      "The paper takes the plain mean over clients, the authors' code that by rows: cohort.weight "
      "decides. Batch-norm statistics of θ are those of its own passes, personal_steps a batch.";
  pfedme.has_hooks = true;
  pfedme.has_personal_models = true;
  pfedme.has_independent_state = true;
  pfedme.passes = [](const Setup& setup) {
    return Passes(static_cast<double>(setup.Get<int64_t>("personal_steps") + 1));
  };
  pfedme.parameters.push_back(
      {.name = "lambda",
       .default_value = 15.0,
       .help = "λ: pull between w and θ; small: personal models far from the global one",
       .minimum = 0});
  pfedme.parameters.push_back({.name = "personal_lr",
                               .default_value = 0.05,
                               .help = "ρ: rate of the steps of θ",
                               .minimum = 0});
  pfedme.parameters.push_back({.name = "personal_steps",
                               .default_value = int64_t{5},
                               .help = "K: steps of θ on each batch",
                               .minimum = 1,
                               .maximum = 10000});
  pfedme.check = CheckPFedMe;
  pfedme.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"personal", setup.layout}};
    return schema;
  };
  pfedme.client = MakeClient<PFedMeClient>;
  return pfedme;
}

}  // namespace macaw::algorithms
