#include "sdk/rules/arena.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"

namespace macaw::sdk::rules {
namespace {

// How many elements of a place the rule sees: a channel of numbers has no gap behind them.
uint64_t ElementsOf(const NamedPlace& place) {
  return place.of_model ? place.layout->size() : place.layout->entries()[0].size;
}

// Whether some element's exponent has all bits set. Written so that compilers vectorise it.
template <typename Bits>
bool AnyNotFinite(std::span<const std::byte> bytes, Bits exponent) {
  Bits found = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits element;
    std::memcpy(&element, bytes.data() + at, sizeof(element));
    found |= (element & exponent) == exponent ? Bits{1} : Bits{0};
  }
  return found != 0;
}

}  // namespace

const char* NameOf(Kind kind) {
  constexpr const char* kNames[kKinds] = {"down", "state",   "up",     "next",
                                          "end",  "scratch", "server", "aggregate"};
  return kNames[static_cast<size_t>(kind)];
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Make(Places places) {
  static std::atomic<uint64_t> made = 0;
  auto arena = std::unique_ptr<Arena>(new Arena());
  arena->id_ = ++made;
  std::vector<LayoutPtr> layouts;
  for (const auto& [kind, items] : places) {
    arena->first_[IndexOf(kind)] = layouts.size();
    arena->counts_[IndexOf(kind)] = items.size();
    for (const NamedPlace& item : items) layouts.push_back(item.layout);
  }
  MACAW_ASSIGN_OR_RETURN(arena->vectors_,
                         peer::SharedVectors::Make("macaw-rule", std::move(layouts)));
  nlohmann::json described, names;
  size_t place = 0;
  for (const auto& [kind, items] : places) {
    const char* const name = NameOf(kind);
    described[name] = names[name] = nlohmann::json::array();
    for (const NamedPlace& item : items) {
      described[name].push_back({arena->vectors_->OffsetOf(place++), ElementsOf(item),
                                 std::string(Name(item.layout->dtype())), item.of_model});
      names[name].push_back(item.name);
    }
  }
  arena->description_ = {{"id", arena->id_},
                         {"bytes", arena->vectors_->bytes()},
                         {"places", std::move(described)},
                         {"names", std::move(names)},
                         {"writable", {"up", "next", "scratch", "server"}}};
  return arena;
}

void Arena::Put(ConstVectorView vector, Kind kind, size_t number) const {
  algorithms::Copy(vector, At(kind, number));
}

std::string FirstNotFinite(ConstVectorView vector) {
  const bool any = vector.dtype() == DType::kF32
                       ? AnyNotFinite<uint32_t>(vector.bytes, 0x7f800000U)
                       : AnyNotFinite<uint64_t>(vector.bytes, 0x7ff0000000000000U);
  if (!any) return "";
  return DispatchDType(vector.dtype(), [&]<typename T>(T) -> std::string {
    for (const LayoutEntry& entry : vector.layout->entries()) {
      const auto tensor = vector.As<T>().subspan(entry.offset, entry.size);
      for (size_t i = 0; i < tensor.size(); ++i) {
        if (!std::isfinite(tensor[i]))
          return absl::StrCat("'", entry.name, "'[", i, "] is ", tensor[i]);
      }
    }
    return "";
  });
}

}  // namespace macaw::sdk::rules
