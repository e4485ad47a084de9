#pragma once

#include <vector>

#include "algorithms/api/description.h"

namespace macaw::algorithms {

// All rules of this folder. A new one needs a line in builtin.cc.
std::vector<Description> BuiltinAlgorithms();

// FedAvg's parts, for a rule that changes some. Whether clients may begin from older models
// (Description::asynchronous), each rule says itself.
Description LikeFedAvg();

Description FedAvg();
Description GradientDescent();
Description FedProx();

// What others are compared with: baselines.cc.
Description Local();
Description Pooled();

// State on the clients.
Description Scaffold();
Description FedDyn();

// Another step of the server: fedopt.cc.
Description FedAdagrad();
Description FedAdam();
Description FedYogi();
Description FedAvgM();
Description FedExP();

Description FedNova();

// Other objectives than the mean of the losses.
Description QFedAvg();
Description Term();
Description Afl();

// Another step or another loss of the clients.
Description FedSam();
Description Moon();

// Smaller models for weaker clients.
Description HeteroFl();

// Solved for from sums over rows.
Description Ridge();
Description KMeans();
Description Daef();

// Two phases a round: mime.cc.
Description Mime();
Description MimeLite();

// Personal models.
Description Ditto();
Description FedBn();
Description FedRep();
Description FedPer();
Description PFedMe();
Description Apfl();
Description PerFedAvg();

// Several models.
Description Ifca();

// Hostile clients: robust/.
Description Median();
Description TrimmedMean();
Description Krum();
Description GeometricMedian();
Description CenteredClipping();
Description NormBound();
Description FlTrust();

}  // namespace macaw::algorithms
