#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"

// FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous
// Networks", MLSys 2020, algorithm FedProx. The local objective is f_i(w) + (μ/2)‖w − x‖², so the
// gradient gains μ(w − x): μ, not μ/2.

namespace macaw::algorithms {
namespace {

class FedProxClient final : public DeltaClient {
 public:
  explicit FedProxClient(const Setup& setup) : DeltaClient(setup), mu_(setup.Get<double>("mu")) {}

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    stage.correction.mu = mu_;  // the anchor is the stage's start, x
    return stage;
  }

 private:
  const double mu_;
};

}  // namespace

Description FedProx() {
  Description fedprox = LikeFedAvg();
  fedprox.asynchronous = true;
  fedprox.name = "fedprox";
  fedprox.summary = "FedAvg with a proximal term that keeps clients near the global model";
  fedprox.paper = "Li et al., 2020, Federated Optimization in Heterogeneous Networks";
  fedprox.formula =
      "client  y ← y − η·(g + μ·(y − x))\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  fedprox.parameters.push_back({.name = "mu",
                                .default_value = 0.01,
                                .help = "μ: strength of the pull towards x; 0 is FedAvg",
                                .minimum = 0});
  fedprox.client = MakeClient<FedProxClient>;
  return fedprox;
}

}  // namespace macaw::algorithms
