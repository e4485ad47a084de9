#include "device/cuda/launch.cuh"
#include "training/cuda/train_clients.h"
#include "training/device/ops.h"
#include "training/device/train_clients-inl.h"

namespace macaw::training {

std::vector<device::CudaKernel> TrainerCudaKernels() {
  return {device::CudaEntry<ondevice::TrainArgs, ondevice::TrainClients, ondevice::kMostThreads>(
      ondevice::kTrainClients)};
}

}  // namespace macaw::training
