#include "training/torch/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <vector>

#include "core/status.h"
#include "training/torch/device.h"

namespace macaw::training {

absl::Status CheckPrecision(const TrainerSetup& setup) {
  if (setup.local.precision != "tf32") return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, NamedDevices(setup.backend));
  if (std::ranges::any_of(devices, &c10::Device::is_cuda)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "local.precision = \"tf32\" is of NVIDIA's GPUs: name them in workers.devices, with "
      "workers.backend = \"torch\", or set \"bf16\"");
}

void SetPrecision(const std::string& precision, c10::Device device) {
  if (!device.is_cuda()) return;
  at::globalContext().setAllowTF32CuBLAS(precision == "tf32");
  at::globalContext().setAllowTF32CuDNN(precision == "tf32");
}

Autocast::Autocast(bool on, c10::Device device) : on_(on), type_(device.type()) {
  if (!on_) return;
  at::autocast::set_autocast_enabled(type_, true);
  at::autocast::set_autocast_dtype(type_, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  // Casts of weights are kept within a pass; the next one has other weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(type_, false);
}

}  // namespace macaw::training
