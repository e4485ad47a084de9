#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shared_memory.h"
#include "core/vector.h"

namespace macaw::peer {

// Vectors in a memory file that another process maps, too: a place each, at whole pages, zeroed.
// Places that nothing has touched take no memory. Thread-safe as far as its bytes are.
class SharedVectors {
 public:
  // `name`: for the system's lists of mappings.
  static absl::StatusOr<std::unique_ptr<SharedVectors>> Make(const char* name,
                                                             std::vector<LayoutPtr> layouts,
                                                             Backing backing = Backing::kMemory);

  int file() const { return memory_->file(); }       // closes on exec
  size_t bytes() const { return memory_->bytes(); }  // of the file
  size_t OffsetOf(size_t place) const { return places_[place].offset; }
  const LayoutPtr& LayoutOf(size_t place) const { return places_[place].layout; }
  VectorView At(size_t place) const;
  // Before a place is written that may lie in a file.
  absl::Status Reserve(size_t place) const;

 private:
  struct Place {
    LayoutPtr layout;
    size_t offset = 0;
  };
  SharedVectors(std::vector<Place> places, std::unique_ptr<SharedMemory> memory)
      : places_(std::move(places)), memory_(std::move(memory)) {}

  const std::vector<Place> places_;
  const std::unique_ptr<SharedMemory> memory_;
};

// Zeroes what lies between the tensors, where the other process may have written.
void ZeroGaps(VectorView vector);

}  // namespace macaw::peer
