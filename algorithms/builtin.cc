#include "algorithms/builtin.h"

#include <cstdlib>

#include "core/logging.h"
namespace macaw::algorithms {

void RegisterBuiltinAlgorithms(Registry& registry) {
  for (Description (*describe)() :
       {FedAvg,   GradientDescent, FedProx, Scaffold,        FedDyn,          FedAdagrad,
        FedAdam,  FedYogi,         FedAvgM, FedNova,         QFedAvg,         Mime,
        MimeLite, Ditto,           FedBn,   FedRep,          Median,          TrimmedMean,
        Krum,     Local,           Pooled,  GeometricMedian, CenteredClipping}) {
    const absl::Status status = registry.Add(describe());
    if (status.ok()) continue;
    // A programming error: a name that is taken, or a default out of range. It occurs at start-up.
    Logger("algorithms").Error(status.ToString());
    std::abort();
  }
}

}  // namespace macaw::algorithms
