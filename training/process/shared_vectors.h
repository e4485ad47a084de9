#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/shared_memory.h"
#include "core/vector.h"

namespace macaw::training::process {

// The vectors of a turn in a memory file, which the owner's program maps, too. All have the model's
// layout, and the gaps between their tensors stay zero.
class SharedVectors {
 public:
  enum Place : size_t { kStart, kEnd, kCorrection, kAnchor };
  static constexpr size_t kPlaces = 4;

  static absl::StatusOr<std::shared_ptr<SharedVectors>> Make(LayoutPtr layout);

  int file() const { return memory_->file(); }
  size_t OffsetOf(Place place) const { return place * stride_; }
  size_t bytes() const { return memory_->bytes(); }
  VectorView At(Place place) const;

 private:
  SharedVectors(LayoutPtr layout, std::unique_ptr<SharedMemory> memory, size_t stride)
      : layout_(std::move(layout)), memory_(std::move(memory)), stride_(stride) {}

  const LayoutPtr layout_;
  const std::unique_ptr<SharedMemory> memory_;
  const size_t stride_;  // whole pages
};

}  // namespace macaw::training::process
