#pragma once

#include <span>

#include "absl/status/status.h"
#include "core/vector.h"

namespace macaw::training {

// Vectors that a trainer left on its device. One thread, the trainer's.
class LeftOnDevice {
 public:
  virtual ~LeftOnDevice() = default;
  // Copies them to the host, unless that is done. An error is the device's.
  virtual absl::Status Fetch() = 0;
};

// The vector at a stage's end. A device's stays there until code on the host looks at it, and so
// the vectors of clients that are added up where they were trained never travel. The first look at
// one copies all that its launch left. One thread, the trainer's; as long as the outcome is valid.
class EndVector {
 public:
  EndVector() = default;  // none
  // A view is an end, too.
  EndVector(ConstVectorView on_host) : host_(on_host) {}
  EndVector(VectorView on_host) : host_(on_host) {}
  // `host` is where Fetch copies it to.
  EndVector(ConstVectorView host, const float* on_device, LeftOnDevice& left)
      : host_(host), on_device_(on_device), left_(&left) {}

  bool empty() const { return host_.empty(); }
  const ParameterLayout* layout() const { return host_.layout; }
  // Where it is, or will be, on the host. Says which vector this is; the bytes may not be there.
  const std::byte* place() const { return host_.bytes.data(); }
  // Its address on the trainer's device; null: it is on the host alone.
  const float* on_device() const { return on_device_; }

  absl::Status Fetch() const { return left_ == nullptr ? absl::OkStatus() : left_->Fetch(); }
  // Fetches. Throws std::runtime_error if the device fails.
  ConstVectorView view() const;
  operator ConstVectorView() const { return view(); }
  template <typename T>
  std::span<const T> As() const {
    return view().As<T>();
  }

 private:
  ConstVectorView host_;
  const float* on_device_ = nullptr;
  LeftOnDevice* left_ = nullptr;
};

}  // namespace macaw::training
