#include "algorithms/builtin.h"
#include "algorithms/local_group.h"
#include "training/api/round_local.h"

// FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for
// Personalized Federated Learning", ICML 2021, algorithm 1: a client first trains its own head with
// the body frozen, then the body with the head frozen, and shares the body alone.

namespace macaw::algorithms {
namespace {

class FedRepClient final : public LocalGroupClient {
 public:
  explicit FedRepClient(const Setup& setup)
      : LocalGroupClient(setup, HeadOf(setup)),
        head_epochs_(static_cast<uint32_t>(setup.Get<int64_t>("head_epochs"))),
        run_(setup.local) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage head = LocalWork(context, workspace);
    head.trainable = group_.inside();
    const LocalConfig whole = training::RoundLocal(run_, context.round);
    head.local.epochs = HeadEpochs(whole, context.local);
    head.local.steps = HeadSteps(whole, context.local);
    training::Stage body = head;
    body.start = training::StageEnd{0};
    body.trainable = group_.outside();
    body.local = context.local;
    return training::LocalPlan{{head, body}};
  }

 private:
  // A straggler does the same fraction of both, rounded up. `whole`: the work of a client that is
  // not a straggler.
  uint32_t HeadEpochs(const LocalConfig& whole, const LocalConfig& local) const {
    const bool counts_steps = whole.steps > 0;
    const uint64_t all = counts_steps ? whole.steps : whole.epochs;
    const uint64_t part = counts_steps ? local.steps : local.epochs;
    if (all == 0 || part >= all) return head_epochs_;
    return static_cast<uint32_t>((head_epochs_ * part + all - 1) / all);
  }

  // A straggler whose one epoch is cut to k of its S steps does k · head_epochs of the head's
  // S · head_epochs.
  uint32_t HeadSteps(const LocalConfig& whole, const LocalConfig& local) const {
    return whole.steps == 0 ? local.steps * head_epochs_ : 0;
  }

  const uint32_t head_epochs_;
  const LocalConfig run_;
};

}  // namespace

Description FedRep() {
  Description fedrep = FedAvg();
  fedrep.asynchronous = false;
  fedrep.name = "fedrep";
  fedrep.summary = "clients share the body of a network and keep their heads";
  fedrep.paper =
      "Collins et al., 2021, Exploiting Shared Representations for Personalized Federated Learning";
  fedrep.formula =
      "client  h_i ← h_i − η·g_h(x, h_i)      head_epochs; h_i: the head, which stays with the client\n"
      "        y ← y − η·g_y(y, h_i)          local.epochs from y = x; y: the body\n"
      "up      Δ = y − x                      without h_i\n"
      "server  x ← x + η_g·mean(Δ)";
  fedrep.has_personal_models = true;
  fedrep.has_independent_state = true;
  fedrep.parameters.push_back(HeadParameter());
  fedrep.parameters.push_back({.name = "head_epochs",
                               .default_value = int64_t{10},
                               .help = "epochs of the head before those of the body",
                               .minimum = 0});
  fedrep.check = CheckHead;
  fedrep.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    return LocalGroupSchema(setup, HeadOf(setup));
  };
  fedrep.client = MakeClient<FedRepClient>;
  return fedrep;
}

}  // namespace macaw::algorithms
