#pragma once

#include "algorithms/api/registry.h"

namespace macaw::algorithms {

// One function a file. builtin.cc puts them into the registry.
Description FedAvg();
Description FedProx();

}  // namespace macaw::algorithms
