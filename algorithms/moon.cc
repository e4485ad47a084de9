#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/builtin.h"
#include "algorithms/last_layer.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "training/api/hooks.h"

// MOON: Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, algorithm 1. To the task's
// loss of a row a client adds μ·ℓ, equation 3: with z, z_x and z_p the representations of the row
// in the model y that is trained, in the common model x and in the client's own model p of its last
// turn,
//
//   ℓ = −log( e^(cos(z, z_x)/τ) / (e^(cos(z, z_x)/τ) + e^(cos(z, z_p)/τ)) ).
//
// z_x and z_p are constants. A client that has no p yet adds nothing: with p = x both cosines are
// the same, and so ℓ is log 2 and has no gradient. In the authors' code p is then a network with
// random weights of its own. That code also divides a cosine by at least 1e-8, so that a z of zeros
// has a huge gradient; here the cosine of zeros is 0 and has none.

namespace macaw::algorithms {
namespace {

double NormOf(std::span<const double> z) {
  double square = 0;
  for (const double value : z) square += value * value;
  return std::sqrt(square);
}

// The cosine of two representations, and by how much it moves with the first one:
// ∂cos/∂z = scale·other − back·z.
struct Cosine {
  double value = 0, scale = 0, back = 0;
};

Cosine CosineOf(std::span<const double> z, double norm, std::span<const double> other) {
  const double lengths = norm * NormOf(other);
  if (lengths == 0) return {};
  double product = 0;
  for (size_t i = 0; i < z.size(); ++i) product += z[i] * other[i];
  const double cosine = product / lengths;
  return {.value = cosine, .scale = 1 / lengths, .back = cosine / (norm * norm)};
}

// μ times Σℓ over the rows, and its gradient. The first reference is x, the second p.
double Contrast(double mu, double tau, const training::Representations& z,
                std::span<double> gradient) {
  double sum = 0;
  for (size_t row = 0; row < z.rows; ++row) {
    const auto of = [&](std::span<const double> all) {
      return all.subspan(row * z.width, z.width);
    };
    const std::span<const double> own = of(z.own);
    const std::span<const double> common = of(z.references[0]), previous = of(z.references[1]);
    const double norm = NormOf(own);
    const Cosine near = CosineOf(own, norm, common), far = CosineOf(own, norm, previous);
    const double apart = (far.value - near.value) / tau;
    // ℓ = log(1 + e^apart), of which the slope is 1/(1 + e^−apart)
    sum += mu * (std::max(apart, 0.0) + std::log1p(std::exp(-std::abs(apart))));
    const double slope = mu / tau / (1 + std::exp(-apart));
    const double back = far.back - near.back;
    for (size_t i = 0; i < z.width; ++i) {
      gradient[row * z.width + i] =
          slope * (far.scale * previous[i] - near.scale * common[i] - back * own[i]);
    }
  }
  return sum;
}

class MoonClient final : public DeltaClient {
 public:
  explicit MoonClient(const Setup& setup)
      : DeltaClient(setup),
        mu_(setup.Get<double>("mu")),
        temperature_(setup.Get<double>("temperature")) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    result.state = {{"previous", outcomes[0].end}};
    return result;
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    if (mu_ == 0) return stage;
    // Without references the hook adds nothing, and a model without representations is refused in
    // the first round.
    if (!context.first_turn) stage.references = {context.model(), context.State("previous")};
    training::Hooks hooks;
    hooks.representations = [mu = mu_, tau = temperature_](const training::Representations& z,
                                                           std::span<double> gradient) {
      return z.references.empty() ? 0.0 : Contrast(mu, tau, z, gradient);
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  const double mu_;
  const double temperature_;  // τ
};

absl::Status CheckMoon(const Setup& setup) {
  if (setup.Get<double>("temperature") <= 0) {
    return absl::InvalidArgumentError("temperature must be above 0: cosines are divided by it");
  }
  if (setup.task == TaskKind::kNextToken) {
    return absl::InvalidArgumentError(
        "it compares the representations of rows, and the task rates each position of a row: set "
        "run.task = \"classification\", or take another rule");
  }
  if (TrainsTheLastLayerAlone(setup)) {
    return absl::InvalidArgumentError(
        "the run trains the model's last layer alone, so no row's representation moves, and the "
        "contrast does nothing: take fedavg, or train a layer below the last");
  }
  return absl::OkStatus();
}

}  // namespace

Description Moon() {
  Description moon = LikeFedAvg();
  moon.name = "moon";
  moon.summary = "MOON: FedAvg whose clients stay near the common model's representations";
  moon.paper = "Li et al., 2021, Model-Contrastive Federated Learning";
  moon.formula =
      "client  y ← y − η·(g + μ·∇ℓ), ℓ the mean over the batch's rows of\n"
      "          −log( e^(s_x/τ) / (e^(s_x/τ) + e^(s_p/τ)) )\n"
      "        s_x = cos(z(y), z(x)), s_p = cos(z(y), z(p_i))      z: a row's representation\n"
      "        p_i ← y, which stays with the client; without a p_i yet, ℓ = 0\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  moon.remarks =
      "A representation is the input of the last layer that has parameters, and of a scripted "
      "module what it returns beside its logits. The authors' networks have a projection head of "
      "two layers before the last one: say it as layers of the model. z(x) and z(p) are without "
      "dropout, by running statistics. A step costs two passes forward more than FedAvg's, and a "
      "client keeps a model. A client's first turn is FedAvg's, so where clients seldom come back "
      "the rule is FedAvg. The authors take μ of 0.1 to 10, by data set, and τ = 0.5. train_loss "
      "has μ·ℓ in it.";
  moon.has_hooks = true;
  moon.has_independent_state = true;
  // z(x) and z(p): of a client's first turn, too, since the clock does not know which that is.
  moon.passes = [](const Setup& setup) {
    return Passes(setup.Get<double>("mu") == 0 ? 1 : 1 + 2 * kForward);
  };
  moon.parameters.push_back({.name = "mu",
                             .default_value = 1.0,
                             .help = "μ: weight of the contrast; 0 is FedAvg",
                             .minimum = 0});
  moon.parameters.push_back({.name = "temperature",
                             .default_value = 0.5,
                             .help = "τ: cosines are divided by it; small: only the nearer of the "
                                     "two models counts",
                             .minimum = 0});
  moon.check = CheckMoon;
  moon.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"previous", setup.layout}};
    return schema;
  };
  moon.client = MakeClient<MoonClient>;
  return moon;
}

}  // namespace macaw::algorithms
