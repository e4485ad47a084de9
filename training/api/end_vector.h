#pragma once

#include <cstddef>
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
  // Where they are on the host, one behind the other; null: they have not been fetched yet.
  virtual const std::byte* on_host() const = 0;
};

// The vector at a stage's end. A device's stays there until code on the host looks at it, and so
// the vectors of clients that are added up where they were trained never travel, and have no memory
// on the host. The first look copies all that its launch left. Trainer's thread, valid outcomes.
class EndVector {
 public:
  EndVector() = default;  // none
  // A view is an end, too.
  EndVector(ConstVectorView on_host) : host_(on_host) {}
  EndVector(VectorView on_host) : host_(on_host) {}
  // `offset`: of its bytes behind LeftOnDevice::on_host.
  EndVector(const ParameterLayout* layout, size_t offset, const float* on_device,
            LeftOnDevice& left)
      : host_{layout, {}}, offset_(offset), on_device_(on_device), left_(&left) {}

  bool empty() const { return host_.layout == nullptr; }
  const ParameterLayout* layout() const { return host_.layout; }
  // Where it is on the host: says which vector this is. Null: nowhere yet.
  const std::byte* place() const {
    if (left_ == nullptr) return host_.bytes.data();
    return left_->on_host() == nullptr ? nullptr : left_->on_host() + offset_;
  }
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
  ConstVectorView host_;  // of one that a device left: the layout alone
  size_t offset_ = 0;
  const float* on_device_ = nullptr;
  LeftOnDevice* left_ = nullptr;
};

}  // namespace macaw::training
