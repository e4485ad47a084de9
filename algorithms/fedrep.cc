#include <algorithm>
#include <cstdint>

#include "algorithms/builtin.h"
#include "algorithms/local_group.h"
#include "training/api/round_local.h"

// FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for
// Personalized Federated Learning", ICML 2021, algorithm 1: a client first trains its own head with
// the body frozen, then the body with the head frozen, and shares the body alone.

namespace macaw::algorithms {
namespace {

// The head's part of a turn. A straggler does the same fraction of it as of the body's, rounded up.
class HeadWork {
 public:
  explicit HeadWork(const Setup& setup)
      : epochs_(static_cast<uint32_t>(setup.Get<int64_t>("head_epochs"))), run_(setup.local) {}

  // `body`: the client's part of the round's [local].
  LocalConfig Of(Round round, const LocalConfig& body) const {
    const LocalConfig whole = training::RoundLocal(run_, round);
    LocalConfig head = body;
    head.epochs = Epochs(whole, body);
    head.steps = Steps(whole, body);
    return head;
  }

 private:
  // `whole`: the work of a client that is not a straggler.
  uint32_t Epochs(const LocalConfig& whole, const LocalConfig& body) const {
    const bool counts_steps = whole.steps > 0;
    const uint64_t all = counts_steps ? whole.steps : whole.epochs;
    const uint64_t part = counts_steps ? body.steps : body.epochs;
    if (all == 0 || part >= all) return epochs_;
    return static_cast<uint32_t>((epochs_ * part + all - 1) / all);
  }

  // A straggler whose one epoch is cut to k of its S steps does k · head_epochs of the head's
  // S · head_epochs.
  uint32_t Steps(const LocalConfig& whole, const LocalConfig& body) const {
    constexpr uint64_t kMost = UINT32_MAX;
    if (whole.steps > 0) return 0;
    return static_cast<uint32_t>(std::min(uint64_t{body.steps} * epochs_, kMost));
  }

  uint32_t epochs_;
  LocalConfig run_;
};

class FedRepClient final : public LocalGroupClient {
 public:
  explicit FedRepClient(const Setup& setup)
      : LocalGroupClient(setup, HeadOf(setup)), head_(setup) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage head = LocalWork(context, workspace);
    head.trainable = group_.inside();
    head.local = head_.Of(context.round, context.local);
    training::Stage body = head;
    body.start = training::StageEnd{0};
    body.trainable = group_.outside();
    body.local = context.local;
    return training::LocalPlan{{head, body}};
  }

 private:
  const HeadWork head_;
};

// Of both parts.
RowsOfTurn FedRepPasses(const Setup& setup) {
  return [head = HeadWork(setup)](const LocalTurn& turn) {
    LocalTurn first = turn;
    first.local = head.Of(turn.round, turn.local);
    return static_cast<double>(RowsPassed(first) + RowsPassed(turn));
  };
}

}  // namespace

Description FedRep() {
  Description fedrep = LikeFedAvg();
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
  fedrep.passes = FedRepPasses;
  fedrep.parameters.push_back(HeadParameter());
  fedrep.parameters.push_back({.name = "head_epochs",
                               .default_value = int64_t{10},
                               .help = "epochs of the head before those of the body",
                               .minimum = 0,
                               .maximum = 10000});
  fedrep.check = CheckHead;
  fedrep.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    return LocalGroupSchema(setup, HeadOf(setup));
  };
  fedrep.client = MakeClient<FedRepClient>;
  return fedrep;
}

}  // namespace macaw::algorithms
