#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "core/fd.h"
#include "core/vector.h"

namespace macaw::training::process {

// The vectors of a turn in a memory file, which the owner's program maps, too. All have the model's
// layout, and the gaps between their tensors stay zero. Pages that nobody touches take no memory.
class SharedVectors {
 public:
  enum Place : size_t { kStart, kEnd, kCorrection, kAnchor };
  static constexpr size_t kPlaces = 4;

  static absl::StatusOr<std::shared_ptr<SharedVectors>> Make(LayoutPtr layout);
  ~SharedVectors();
  SharedVectors(const SharedVectors&) = delete;
  SharedVectors& operator=(const SharedVectors&) = delete;

  int file() const { return file_.get(); }
  size_t OffsetOf(Place place) const { return place * stride_; }
  size_t bytes() const { return kPlaces * stride_; }
  VectorView At(Place place) const;

 private:
  SharedVectors(LayoutPtr layout, Fd file, std::byte* data, size_t stride)
      : layout_(std::move(layout)), file_(std::move(file)), data_(data), stride_(stride) {}

  const LayoutPtr layout_;
  const Fd file_;
  std::byte* const data_;
  const size_t stride_;  // whole pages
};

}  // namespace macaw::training::process
