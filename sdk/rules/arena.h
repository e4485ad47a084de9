#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shared_memory.h"
#include "core/vector.h"

namespace macaw::sdk::rules {

// What a place of an arena holds. The names are those of the channel (README.md).
enum class Kind : uint8_t { kDown, kState, kUp, kNext, kEnd, kScratch, kServer, kAggregate };
inline constexpr size_t kKinds = 8;
const char* NameOf(Kind kind);

struct NamedPlace {
  std::string name;  // may be empty
  LayoutPtr layout;
};

// Vectors in a memory file that a rule's process maps, too: a place each, of one layout, at whole
// pages. Places that nobody has touched take no memory. One thread at a time.
class Arena {
 public:
  using Places = std::vector<std::pair<Kind, std::vector<NamedPlace>>>;
  static absl::StatusOr<std::unique_ptr<Arena>> Make(Places places);

  uint64_t id() const { return id_; }  // of this process, never used again
  int file() const { return memory_->file(); }
  // What the rule's process needs to know of it.
  const nlohmann::json& description() const { return description_; }

  size_t count(Kind kind) const { return places_[static_cast<size_t>(kind)].size(); }
  VectorView At(Kind kind, size_t number) const;
  const LayoutPtr& LayoutOf(Kind kind, size_t number) const {
    return places_[static_cast<size_t>(kind)][number].layout;
  }
  void Put(ConstVectorView vector, Kind kind, size_t number) const;

 private:
  struct Place {
    LayoutPtr layout;
    size_t offset = 0;
  };
  Arena() = default;

  uint64_t id_ = 0;
  std::array<std::vector<Place>, kKinds> places_;
  std::unique_ptr<SharedMemory> memory_;
  nlohmann::json description_;
};

// Zeroes what lies between the tensors, where a rule may have written.
void ZeroGaps(VectorView vector);

// The first element of a vector's tensors that is not finite, as "'0.weight'[3] is nan"; empty if
// there is none.
std::string FirstNotFinite(ConstVectorView vector);

}  // namespace macaw::sdk::rules
