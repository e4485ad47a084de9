#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/build_tag.h"
#include "training/api/trainer.h"

namespace macaw::device {
class Collective;
}  // namespace macaw::device

namespace macaw::training {

// Makes trainers of one kind: "fused", the CPU kernels that are part of every worker, or one of a
// module (a shared library that is loaded when a run needs it, training/backends.h). Thread-safe.
// Lives until the process ends.
class Backend {
 public:
  virtual ~Backend() = default;

  // What workers.backend and the numeric profile call it.
  virtual std::string name() const = 0;
  // OK if it can do what the run asks of every stage. An error says briefly what it cannot do: "it
  // computes in float32 only". Depends on the setup alone.
  virtual absl::Status Supports(const TrainerSetup& setup) const = 0;
  // All that decides the bits of its trainers' results. An error says why there are none.
  virtual absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const = 0;
  virtual absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const = 0;
  // How many trainers, each on a thread of its own, serve a node's `slots` (≥ 1); between 1 and
  // `slots`. A processor core trains one client at a time, a device many.
  virtual absl::StatusOr<uint32_t> LanesFor(const TrainerSetup&, uint32_t slots) const {
    return slots;
  }

  // How many devices the trainers of a node with this choice share; 0: they work on cores. Opens
  // none of them. An error says which is missing, and why.
  virtual absl::StatusOr<uint32_t> DevicesFor(const BackendChoice&) const { return 0; }

  // How several devices of its trainers add up together; through the host, unless it knows better.
  virtual absl::StatusOr<std::unique_ptr<device::Collective>> MakeCollective(
      std::vector<device::Device*> devices) const;

  // Its versions and what they can do on this machine, one line, for `macaw doctor`. May take a
  // second.
  virtual std::string Report() const = 0;
  // Reads a scripted module (TorchScript) and writes what it holds to `out` (models/script.h).
  virtual absl::Status DescribeScript(const std::string& script, const std::string& out) const;
};

// The only symbol that a module exports. The tag comes first and is checked before anything else is
// read.
struct BackendEntry {
  const char* build_tag;
  const Backend* (*backend)();
};

}  // namespace macaw::training

// Write MACAW_BACKEND(function) once in a module, outside any namespace. The function returns the
// module's back end.
#define MACAW_BACKEND(function)                                                          \
  extern "C" __attribute__((visibility("default"))) const macaw::training::BackendEntry* \
  macaw_backend() {                                                                      \
    static constexpr macaw::training::BackendEntry kEntry = {MACAW_BUILD_TAG, function}; \
    return &kEntry;                                                                      \
  }
