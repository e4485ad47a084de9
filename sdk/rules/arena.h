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
#include "core/peer/shared_vectors.h"
#include "core/vector.h"

namespace macaw::sdk::rules {

// What a place of an arena holds. The names are those of the channel (README.md).
enum class Kind : uint8_t { kDown, kState, kUp, kNext, kEnd, kScratch, kServer, kAggregate };
inline constexpr size_t kKinds = 8;
const char* NameOf(Kind kind);

struct NamedPlace {
  std::string name;  // may be empty
  LayoutPtr layout;
  bool of_model = false;  // it has the model's tensors; else it is a channel of numbers
};

// The vectors that a rule's process shares, by kind and number. One thread at a time.
class Arena {
 public:
  using Places = std::vector<std::pair<Kind, std::vector<NamedPlace>>>;
  static absl::StatusOr<std::unique_ptr<Arena>> Make(Places places);

  uint64_t id() const { return id_; }  // of this process, never used again
  int file() const { return vectors_->file(); }
  // What the rule's process needs to know of it.
  const nlohmann::json& description() const { return description_; }

  size_t count(Kind kind) const { return counts_[IndexOf(kind)]; }
  VectorView At(Kind kind, size_t number) const { return vectors_->At(PlaceOf(kind, number)); }
  void Put(ConstVectorView vector, Kind kind, size_t number) const;

 private:
  Arena() = default;
  static size_t IndexOf(Kind kind) { return static_cast<size_t>(kind); }
  size_t PlaceOf(Kind kind, size_t number) const { return first_[IndexOf(kind)] + number; }

  uint64_t id_ = 0;
  std::array<size_t, kKinds> first_ = {}, counts_ = {};  // a kind's places follow one another
  std::unique_ptr<peer::SharedVectors> vectors_;
  nlohmann::json description_;
};

// The first element of a vector's tensors that is not finite, as "'0.weight'[3] is nan"; empty if
// there is none.
std::string FirstNotFinite(ConstVectorView vector);

}  // namespace macaw::sdk::rules
