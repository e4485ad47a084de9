#pragma once

#include "training/api/backend.h"

namespace macaw::training {

// The back end "cuda": training/device's trainers on NVIDIA's GPUs. A device is opened by the first
// trainer that uses it, by nothing else but Report, and stays open until the process ends.
const Backend& CudaBackend();

}  // namespace macaw::training
