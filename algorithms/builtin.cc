#include "algorithms/builtin.h"

#include <cstdlib>

#include "core/logging.h"
namespace macaw::algorithms {

void RegisterBuiltinAlgorithms(Registry& registry) {
  for (Description (*describe)() :
       {FedAvg, GradientDescent, FedProx, Scaffold, FedDyn, FedAdagrad, FedAdam, FedYogi, FedAvgM,
        FedNova, QFedAvg, Mime, MimeLite, Ditto, FedBn, FedRep, Median, TrimmedMean, Krum}) {
    const absl::Status status = registry.Add(describe());
    if (status.ok()) continue;
    // A programmer's error: a name taken twice or a default out of range, before anything has
    // started.
    Logger("algorithms").Error(status.ToString());
    std::abort();
  }
}

}  // namespace macaw::algorithms
