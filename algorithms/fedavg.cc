#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"

// Federated averaging: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient
// Learning of Deep Networks from Decentralized Data", AISTATS 2017, algorithm 1; η_g after Reddi et
// al., ICLR 2021.

namespace macaw::algorithms {

Description FedAvg() {
  return {
      .name = "fedavg",
      .summary = "clients run local SGD, the server takes the weighted mean of their updates",
      .paper =
          "McMahan et al., 2017, Communication-Efficient Learning of Deep Networks from "
          "Decentralized Data",
      .parameters =
          {{.name = "server_lr",
            .default_value = 1.0,
            .help = "η_g: the model moves by η_g times the mean update; 1 is the paper's averaging",
            .minimum = 0}},
      .schema = MeanDeltaSchema,
      .server = [](const Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
        return std::make_unique<MeanDeltaServer>(std::move(model), setup.Get<double>("server_lr"));
      },
      .client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
        return std::make_unique<DeltaClient>(setup);
      },
  };
}

}  // namespace macaw::algorithms
