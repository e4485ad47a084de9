#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"

// Federated averaging: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient
// Learning of Deep Networks from Decentralized Data", AISTATS 2017, algorithm 1; η_g after Reddi et
// al., ICLR 2021.

namespace macaw::algorithms {

Description LikeFedAvg() {
  Description rule = {
      .name = "fedavg",
      .summary = "clients run local SGD, the server takes the weighted mean of their updates",
      .paper =
          "McMahan et al., 2017, Communication-Efficient Learning of Deep Networks from "
          "Decentralized Data",
      .formula =
          "client  y ← y − η·g\n"
          "up      Δ = y − x\n"
          "server  x ← x + η_g·mean(Δ)",
      .parameters = ServerRateParameters(),
      .schema = MeanDeltaSchema,
      .server = MakeServer<MeanDeltaServer>,
      .client = MakeClient<DeltaClient>,
  };
  rule.parameters.push_back(UpdateClipParameter());
  return rule;
}

Description FedAvg() {
  Description fedavg = LikeFedAvg();
  fedavg.asynchronous = true;
  return fedavg;
}

}  // namespace macaw::algorithms
