#include "cli/config/short_clients.h"

#include "core/status.h"
#include "plan/local_steps.h"

namespace macaw::cli {

absl::StatusOr<ShortClients> ShortClientsOf(const LocalConfig& local,
                                            const data::Dataset& dataset) {
  ShortClients found;
  const uint32_t least = LeastRows(local);
  if (least <= 1) return found;
  for (ClientId client; client.value < dataset.info().clients; ++client.value) {
    const uint32_t rows = dataset.Examples(client, data::Split::kTrain);
    if (rows == 0 || rows >= least) continue;
    ++found.clients;
    found.examples += rows;
    if (dataset.info().train_tokens == 0) continue;
    MACAW_ASSIGN_OR_RETURN(const data::Rows read, dataset.Client(client, data::Split::kTrain));
    found.tokens += data::TokensOf(read);
  }
  return found;
}

}  // namespace macaw::cli
