#include "core/peer/shared_vectors.h"

#include <cstdint>
#include <cstring>

#include "core/status.h"

namespace macaw::peer {

absl::StatusOr<std::unique_ptr<SharedVectors>> SharedVectors::Make(const char* name,
                                                                   std::vector<LayoutPtr> layouts,
                                                                   Backing backing) {
  std::vector<Place> places;
  size_t bytes = 0;
  for (LayoutPtr& layout : layouts) {
    const size_t offset = bytes;
    bytes += RoundUpToPage(layout->bytes());
    places.push_back({std::move(layout), offset});
  }
  if (bytes == 0) bytes = 1;  // an empty file cannot be mapped
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                         SharedMemory::Make(name, RoundUpToPage(bytes), backing));
  return std::unique_ptr<SharedVectors>(new SharedVectors(std::move(places), std::move(memory)));
}

VectorView SharedVectors::At(size_t place) const {
  const auto& [layout, offset] = places_[place];
  return {layout.get(), {memory_->data() + offset, layout->bytes()}};
}

absl::Status SharedVectors::Reserve(size_t place) const {
  return memory_->Reserve(places_[place].offset, places_[place].layout->bytes());
}

void ZeroGaps(VectorView vector) {
  const size_t width = SizeOf(vector.dtype());
  uint64_t done = 0;  // elements
  const auto zero = [&](uint64_t end) {
    std::memset(vector.bytes.data() + done * width, 0, (end - done) * width);
  };
  for (const LayoutEntry& entry : vector.layout->entries()) {
    zero(entry.offset);
    done = entry.offset + entry.size;
  }
  zero(vector.size());
}

}  // namespace macaw::peer
