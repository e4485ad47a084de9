#include "algorithms/builtin.h"

namespace macaw::algorithms {

std::vector<Description> BuiltinAlgorithms() {
  return {FedAvg(),
          GradientDescent(),
          FedProx(),
          Scaffold(),
          FedDyn(),
          FedAdagrad(),
          FedAdam(),
          FedYogi(),
          FedAvgM(),
          FedNova(),
          QFedAvg(),
          Mime(),
          MimeLite(),
          Ditto(),
          FedBn(),
          FedRep(),
          Median(),
          TrimmedMean(),
          Krum(),
          Local(),
          Pooled(),
          GeometricMedian(),
          CenteredClipping(),
          NormBound(),
          FlTrust(),
          FedExP(),
          Term(),
          Afl(),
          FedSam(),
          PFedMe(),
          Apfl(),
          PerFedAvg(),
          Ifca(),
          FedPer(),
          Moon(),
          HeteroFl(),
          Ridge(),
          KMeans(),
          Daef()};
}

}  // namespace macaw::algorithms
