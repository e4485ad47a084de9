#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"

// Gradient descent on the union of the clients' rows: FedSGD of McMahan, Moore, Ramage, Hampson,
// Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
// AISTATS 2017. Every client takes one step on all of its rows; the epochs, steps and batches of
// [local] are ignored. The mean of these steps is a step along the mean gradient.

namespace macaw::algorithms {
namespace {

class GradientDescentClient final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    stage.local.steps = 1;
    stage.local.batch_size = 0;  // all rows
    stage.local.shuffle = false;
    stage.local.drop_last = false;
    return stage;
  }
};

}  // namespace

Description GradientDescent() {
  Description gd = LikeFedAvg();
  gd.name = "gd";
  gd.summary = "one step a round along the mean gradient: gradient descent over all clients' rows";
  gd.formula =
      "up      Δ = −η·∇f_i(x)\n"
      "server  x ← x + η_g·mean(Δ)";
  gd.ignores = {"local.epochs", "local.steps", "local.batch_size", "local.shuffle",
                "local.drop_last"};
  gd.passes = [](const Setup&) { return Passes(0, 1); };
  gd.check = NeedsSgd;  // a client's Adam step is not along its gradient
  gd.client = MakeClient<GradientDescentClient>;
  return gd;
}

}  // namespace macaw::algorithms
