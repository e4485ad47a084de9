#include "device/cuda/launch.cuh"
#include "training/cuda/train_clients.h"
#include "training/device/ops.h"
#include "training/device/train_clients-inl.h"

namespace macaw::training {

// Two blocks share a processor: 2 · 256 threads have all of its registers, 128 each. One register
// more would leave it half empty.
constexpr uint32_t kBlocksOfAProcessor = 2;

std::vector<device::CudaKernel> TrainerCudaKernels() {
  return {device::CudaEntry<ondevice::TrainArgs, ondevice::TrainClients, ondevice::kMostThreads,
                            kBlocksOfAProcessor>(ondevice::kTrainClients)};
}

}  // namespace macaw::training
