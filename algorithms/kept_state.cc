#include "algorithms/kept_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"

namespace macaw::algorithms {

VectorView KeptState::Vector(const std::string& name, FlatVector initial) {
  return vectors_.insert_or_assign(name, std::move(initial)).first->second.view();
}

double& KeptState::Number(const std::string& name, double initial) {
  return numbers_.insert_or_assign(name, initial).first->second;
}

ServerState KeptState::Save() const {
  ServerState state;
  for (const auto& [name, vector] : vectors_) state.vectors.emplace(name, vector.Clone());
  state.numbers = numbers_;
  return state;
}

absl::Status KeptState::Load(const ServerState& state) {
  for (const auto& [name, vector] : vectors_) {
    const auto found = state.vectors.find(name);
    if (found == state.vectors.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the saved state has no vector '", name,
                                                     "': it belongs to another algorithm"));
    }
    if (!SameLayout(found->second.layout().get(), vector.layout().get())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the saved vector '", name, "' has another layout (names, shapes or dtype differ)"));
    }
  }
  for (const auto& [name, number] : numbers_) {
    if (!state.numbers.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat("the saved state has no number '", name,
                                                     "': it belongs to another algorithm"));
    }
  }
  for (auto& [name, vector] : vectors_) Copy(state.vectors.at(name).view(), vector.view());
  for (auto& [name, number] : numbers_) number = state.numbers.at(name);
  return absl::OkStatus();
}

}  // namespace macaw::algorithms
