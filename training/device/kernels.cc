#include "training/device/kernels.h"

#include "training/device/train_clients-inl.h"

namespace macaw::training {

std::span<const device::HostKernelEntry> DeviceTrainerKernels() {
  static constexpr device::HostKernelEntry kEntries[] = {
      device::HostEntry<ondevice::TrainArgs, ondevice::TrainClients>(ondevice::kTrainClients)};
  return kEntries;
}

}  // namespace macaw::training
