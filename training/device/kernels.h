#pragma once

#include <span>

#include "device/kernel.h"

namespace macaw::training {

// The host's copies of this room's kernels, for a device in this process.
std::span<const device::HostKernelEntry> DeviceTrainerKernels();

}  // namespace macaw::training
