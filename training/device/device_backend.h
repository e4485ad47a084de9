#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"
#include "training/api/backend.h"
#include "training/device/device_trainer.h"

namespace macaw::training {

// A back end whose trainers are DeviceTrainers. A node's lanes are shared out among its devices,
// two a device: while one waits for the device, the other prepares clients or adds updates up.
class DeviceBackend : public Backend {
 public:
  explicit DeviceBackend(const DeviceLimits& limits = {}) : limits_(limits) {}

  absl::Status Supports(const TrainerSetup& setup) const override;
  // The same on every device: the bits depend on the version of the kernel alone.
  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override;
  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override;
  absl::StatusOr<uint32_t> LanesFor(const TrainerSetup& setup, uint32_t slots) const override;
  absl::StatusOr<uint32_t> DevicesFor(const BackendChoice& choice) const override;

 protected:
  // How many devices these names are, without opening one: a device that is open takes memory, and
  // some let one process in.
  virtual absl::StatusOr<size_t> CountDevices(const std::vector<std::string>& names) const = 0;
  // The devices of these names (workers.devices), or all. They know the kernels of
  // training/device/kernels.h and live until the process ends. An error says which is missing, and
  // why.
  virtual absl::StatusOr<std::vector<device::Device*>> Devices(
      const std::vector<std::string>& names) const = 0;

 private:
  const DeviceLimits limits_;
};

}  // namespace macaw::training
