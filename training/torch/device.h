#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/api/trainer.h"

namespace macaw::training {

// Where trainers of LibTorch work: the processor, unless the node's file names devices of LibTorch
// (workers.backend = "torch", workers.devices = ["cuda:0", "cuda:1"]).

// The devices that the node's file names; empty: the processor. An error names the one that is no
// device of LibTorch. Opens none.
absl::StatusOr<std::vector<c10::Device>> NamedDevices(const BackendChoice& choice);

// The device of one of the node's trainers, which take them in turn, ready for work. Errors say
// what is missing: this machine has no such device, or LibTorch is one for processors. Thread-safe.
absl::StatusOr<c10::Device> OpenDevice(const TrainerSetup& setup);

// A stream of the open device for the operations of one trainer, so that several trainers of a
// device work side by side. None: on the processor, and on a device that has no streams to give.
std::optional<c10::Stream> OwnStream(c10::Device device);

// What decides the bits of a device's kernels, for the numeric profile: "cuda sm_90". The device is
// open.
std::string KernelsOf(c10::Device device);
// The same of several, which it opens. An error names two that differ, or one that is not there.
absl::StatusOr<std::string> KernelsOf(const std::vector<c10::Device>& devices);

}  // namespace macaw::training
