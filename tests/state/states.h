#pragma once

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/vector.h"
#include "state/client_state_store.h"
#include "testing/temporary_folder.h"

namespace macaw::state {

using testing_support::TemporaryFolder;

// A control variate in f32 and a counter in f64.
inline StateSchema TwoItems() {
  return {ParameterLayout::Scalars("control", 20, DType::kF32),
          ParameterLayout::Scalars("turns", 1, DType::kF64)};
}

// Vectors of a schema whose contents depend on `seed`.
struct TestState {
  std::vector<FlatVector> vectors;

  explicit TestState(const StateSchema& schema, int seed) {
    for (const LayoutPtr& layout : schema) {
      FlatVector vector(layout);
      DispatchDType(layout->dtype(), [&]<typename T>(T) {
        for (uint64_t i = 0; i < layout->count(); ++i)
          vector.As<T>()[i] = static_cast<T>(seed * 1000 + i);
      });
      vectors.push_back(std::move(vector));
    }
  }
  std::vector<ConstVectorView> views() const {
    std::vector<ConstVectorView> views;
    for (const FlatVector& vector : vectors) views.push_back(vector.view());
    return views;
  }
  bool Equals(const ClientState& state) const {
    if (state.items.size() != vectors.size()) return false;
    for (size_t i = 0; i < vectors.size(); ++i) {
      if (DigestOfValues(state.items[i]) != DigestOfValues(vectors[i].view())) return false;
    }
    return true;
  }
};

inline Attempt Version(uint64_t client, uint32_t epoch, uint64_t counter) {
  return {ClientId(client), Fence{epoch, counter}};
}

}  // namespace macaw::state
