#pragma once

#include <c10/core/Device.h>

#include <string>

#include "absl/status/status.h"
#include "training/api/trainer.h"

namespace macaw::training {

// local.precision of LibTorch's trainers:
//   full   every operation in run.dtype
//   bf16   LibTorch's autocast: products and convolutions in bfloat16, what needs more in float32;
//          weights, gradients, losses and optimizer stay float32
//   tf32   GPUs take products of float32 in TF32 (10 bits behind the point)
// An error says where the devices cannot have it. Depends on the setup alone.
absl::Status CheckPrecision(const TrainerSetup& setup);

// What holds for all threads of the process, before the first operation: TF32 or not.
void SetPrecision(const std::string& precision, c10::Device device);

// Passes that begin while it lives, on this thread.
class Autocast {
 public:
  Autocast(bool on, c10::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool on_;
  const c10::DeviceType type_;
};

}  // namespace macaw::training
