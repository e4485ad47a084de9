#include <memory>
#include <utility>

#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "algorithms/own_steps.h"
#include "core/status.h"
#include "training/api/hooks.h"

// Per-FedAvg: Fallah, Mokhtari, Ozdaglar, "Personalized Federated Learning with Theoretical
// Guarantees: A Model-Agnostic Meta-Learning Approach", NeurIPS 2020, algorithm 1 in its
// first-order form (FO), without the factor I − α∇²f. The objective is the mean of
// f_i(x − α∇f_i(x)): the loss after a client has adapted x by one step. A step takes two batches:
// w̃ = w − α·g(w) of the first, and w ← w − β·g(w̃) of the second. β is local.lr.

namespace macaw::algorithms {
namespace {

class PerFedAvgClient final : public DeltaClient {
 public:
  explicit PerFedAvgClient(const Setup& setup)
      : DeltaClient(setup), alpha_(setup.Get<double>("alpha")) {}

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const double decay = std::exchange(stage.local.weight_decay, 0.0);
    const VectorView adapted = workspace.Vector(layout_);
    training::Hooks hooks;
    hooks.correct = [this, decay, adapted, second = false](ConstVectorView w, VectorView g,
                                                           training::StepGradients& batch) mutable {
      if (!std::exchange(second, !second)) {
        Axpy(decay, w, g);
        Copy(w, adapted);
        Axpy(-alpha_, g, adapted);
        Zero(g);  // w stays where it is
      } else {
        Copy(batch.GradientAt(adapted), g);
        Axpy(decay, adapted, g);
        ZeroBuffers(g);
      }
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }

 private:
  const double alpha_;
};

// Every batch has a gradient at w, and the second of each pair one at w̃, too.
RowsOfTurn PerFedAvgPasses(const Setup&) {
  return [](const LocalTurn& turn) {
    const EpochBatches batches = turn.batches();
    const uint64_t steps = turn.steps();
    if (steps == 0) return 0.0;
    // Of the last batches of passes, those that are second: all or every other one.
    const uint64_t lasts = steps / batches.count / (batches.count % 2 == 0 ? 1 : 2);
    return static_cast<double>(RowsPassed(turn) + batches.Rows(steps / 2, lasts));
  };
}

absl::Status CheckPerFedAvg(const Setup& setup) {
  if (setup.local.steps == 1) {
    return absl::InvalidArgumentError(
        "local.steps = 1: a step of the rule takes two batches, so no client would move; use an "
        "even number");
  }
  return NeedsOwnSteps(setup);
}

}  // namespace

Description PerFedAvg() {
  Description perfedavg = LikeFedAvg();
  perfedavg.name = "perfedavg";
  perfedavg.summary = "a common model that is good after a client adapts it by one step (FO-MAML)";
  perfedavg.paper =
      "Fallah et al., 2020, Personalized Federated Learning with Theoretical Guarantees: A "
      "Model-Agnostic Meta-Learning Approach";
  perfedavg.formula =
      "client  for each pair of batches, of which g and g′ are:\n"
      "          ỹ = y − α·g(y)\n"
      "          y ← y − η·g′(ỹ)                   η is the paper's β\n"
      "up      Δ = y − x\n"
      "server  x ← x + η_g·mean(Δ)";
  perfedavg.remarks =
      "What a client uses is x after one step on its own rows: evaluate it with "
      "evaluation.fine_tune.steps = 1 and evaluation.fine_tune.lr = α, in the columns "
      "clients_test_tuned_*. local.steps and epochs count batches, two to a step; the last one of "
      "an odd number, a straggler's among them, changes nothing.";
  perfedavg.has_hooks = true;
  perfedavg.batches_a_step = 2;
  perfedavg.passes = PerFedAvgPasses;
  perfedavg.parameters.push_back({.name = "alpha",
                                  .default_value = 0.01,
                                  .help = "α: rate of the step by which a client adapts x; 0 is "
                                          "FedAvg on every second batch",
                                  .minimum = 0});
  perfedavg.check = CheckPerFedAvg;
  perfedavg.client = MakeClient<PerFedAvgClient>;
  return perfedavg;
}

}  // namespace macaw::algorithms
