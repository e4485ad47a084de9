#include "server/engine/possible_losses.h"

#include <vector>

namespace macaw::server {

std::optional<EvaluationSums> WithPossibleLosses(const EvaluationSums& sums) {
  using ClientSums = EvaluationSums::ClientSums;
  const auto has_rows = [](const ClientSums& client) {
    return !client.sums.empty() && client.sums[0] > 0;
  };
  const auto lacks_it = [&](const ClientSums& client) {
    return has_rows(client) && !HasPossibleLoss(client.sums);
  };
  std::optional<EvaluationSums> counted;
  for (size_t rows = 0; rows < kEvaluatedRows; ++rows) {
    const std::vector<ClientSums>& clients = sums.clients[rows];
    const auto without = static_cast<size_t>(std::ranges::count_if(clients, lacks_it));
    const auto all = static_cast<size_t>(std::ranges::count_if(clients, has_rows));
    if (!MayBeLeftOut(without, all)) continue;
    if (!counted.has_value()) counted = sums;
    counted->missing[rows] += without;
    for (const ClientSums& client : clients)
      if (lacks_it(client)) counted->uncounted[rows] += client.sums[0];
    std::erase_if(counted->clients[rows], lacks_it);
  }
  return counted;
}

}  // namespace macaw::server
