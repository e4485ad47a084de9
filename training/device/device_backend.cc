#include "training/device/device_backend.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::training {
namespace {

constexpr size_t kLanesOfADevice = 2;

}  // namespace

absl::Status DeviceBackend::Supports(const TrainerSetup& setup) const {
  return DeviceTrainer::Supports(setup);
}

absl::StatusOr<NumericProfile> DeviceBackend::Profile(const TrainerSetup& setup) const {
  MACAW_RETURN_IF_ERROR(CountDevices(setup.backend.devices).status());
  return NumericProfile{.trainer = name(),
                        .instruction_set = "any device",
                        .libraries = absl::StrCat("kernel ", DeviceTrainer::kVersion)};
}

absl::StatusOr<std::unique_ptr<LocalTrainer>> DeviceBackend::MakeTrainer(
    const TrainerSetup& setup) const {
  MACAW_ASSIGN_OR_RETURN(const std::vector<device::Device*> devices,
                         Devices(setup.backend.devices));
  return DeviceTrainer::Make(setup, *devices[setup.lane % devices.size()], limits_);
}

absl::StatusOr<uint32_t> DeviceBackend::LanesFor(const TrainerSetup& setup, uint32_t slots) const {
  MACAW_ASSIGN_OR_RETURN(const size_t devices, CountDevices(setup.backend.devices));
  return static_cast<uint32_t>(std::min<size_t>(slots, kLanesOfADevice * devices));
}

absl::StatusOr<uint32_t> DeviceBackend::DevicesFor(const BackendChoice& choice) const {
  MACAW_ASSIGN_OR_RETURN(const size_t devices, CountDevices(choice.devices));
  return static_cast<uint32_t>(devices);
}

}  // namespace macaw::training
