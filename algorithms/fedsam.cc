#include <cmath>
#include <memory>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "algorithms/own_steps.h"
#include "training/api/hooks.h"

// FedSAM: Qu, Li, Duan, Liu, Tang, Lu, "Generalized Federated Learning via Sharpness Aware
// Minimization", ICML 2022, algorithm 1: FedAvg whose clients take the steps of SAM (Foret et al.,
// ICLR 2021). A step's gradient is that at y + ρ·g/‖g‖, of the same batch. The ℓ2 term of
// local.weight_decay is added at y, as in SAM's code, and is no part of ‖g‖.

namespace macaw::algorithms {
namespace {

class FedSamClient final : public DeltaClient {
 public:
  explicit FedSamClient(const Setup& setup) : DeltaClient(setup), rho_(setup.Get<double>("rho")) {}

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const VectorView sharp = workspace.Vector(layout_);
    training::Hooks hooks;
    hooks.correct = [this, sharp](ConstVectorView y, VectorView g, training::StepGradients& batch) {
      const double norm = std::sqrt(SquaredNorm(g));
      if (norm == 0) return;  // no direction
      ZeroBuffers(g);
      Copy(y, sharp);
      Axpy(rho_ / norm, g, sharp);
      Copy(batch.GradientAt(sharp), g);
      ZeroBuffers(g);
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  const double rho_;
};

}  // namespace

Description FedSam() {
  Description fedsam = LikeFedAvg();
  fedsam.asynchronous = true;
  fedsam.name = "fedsam";
  fedsam.summary = "FedSAM: FedAvg whose clients look for flat minima";
  fedsam.paper = "Qu et al., 2022, Generalized Federated Learning via Sharpness Aware Minimization";
  fedsam.formula =
      "client  y ← y − η·g(y + ρ·g(y)/‖g(y)‖), both of one batch\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  fedsam.has_hooks = true;
  fedsam.passes = [](const Setup&) { return Passes(2); };
  fedsam.parameters.push_back({.name = "rho",
                               .default_value = 0.05,
                               .help = "ρ: how far a step looks uphill; 0 is FedAvg",
                               .minimum = 0});
  fedsam.check = NeedsNoClip;
  fedsam.client = MakeClient<FedSamClient>;
  return fedsam;
}

}  // namespace macaw::algorithms
