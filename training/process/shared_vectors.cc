#include "training/process/shared_vectors.h"

#include <utility>

#include "core/status.h"

namespace macaw::training::process {

absl::StatusOr<std::shared_ptr<SharedVectors>> SharedVectors::Make(LayoutPtr layout) {
  const size_t stride = RoundUpToPage(layout->bytes());
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                         SharedMemory::Make("macaw-program", kPlaces * stride));
  return std::shared_ptr<SharedVectors>(
      new SharedVectors(std::move(layout), std::move(memory), stride));
}

VectorView SharedVectors::At(Place place) const {
  return {layout_.get(), {memory_->data() + OffsetOf(place), layout_->bytes()}};
}

}  // namespace macaw::training::process
