#include "algorithms/builtin.h"
#include "algorithms/local_group.h"

// FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization
// Layers", 2019, algorithms 1 and 2: a client trains base and personal layers together, and shares
// the base alone. In the paper a client's personal layers begin at random values of its own; here
// they begin as the common model's, which nothing moves, so all clients begin alike.

namespace macaw::algorithms {
namespace {

class FedPerClient final : public LocalGroupClient {
 public:
  explicit FedPerClient(const Setup& setup) : LocalGroupClient(setup, HeadOf(setup)) {}
};

}  // namespace

Description FedPer() {
  Description fedper = LikeFedAvg();
  fedper.name = "fedper";
  fedper.summary = "FedAvg, but the last layers stay with each client";
  fedper.paper = "Arivazhagan et al., 2019, Federated Learning with Personalization Layers";
  fedper.formula =
      "client  y = (x, h_i)              h_i: the head, which stays with the client\n"
      "        y ← y − η·g, then (y, h_i) = y\n"
      "up      Δ = y − x                 without h_i\n"
      "server  x ← x + η_g·mean(Δ)";
  fedper.remarks =
      "Body and head are trained together; fedrep trains the head first, and then the body. The "
      "common model's head stays as it began.";
  fedper.has_personal_models = true;
  fedper.has_independent_state = true;
  fedper.parameters.push_back(HeadParameter());
  fedper.check = CheckHead;
  fedper.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    return LocalGroupSchema(setup, HeadOf(setup));
  };
  fedper.client = MakeClient<FedPerClient>;
  return fedper;
}

}  // namespace macaw::algorithms
