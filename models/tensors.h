#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec.h"

namespace macaw::models {

// How a tensor starts: uniform in ±1/√fan_in, or a constant.
enum class Init : uint8_t { kUniform, kOne, kZero };

struct TensorPlan {
  std::string name;  // within its layer: "weight", "conv1.weight"
  std::vector<int64_t> shape;
  Init init = Init::kUniform;
  int64_t fan_in = 1;
};

// The tensors of a layer, in the order of PyTorch's named_parameters(): what the layout, the
// initialisation and the forward pass agree on. Requires a layer with its sizes filled in.
std::vector<TensorPlan> TensorsOf(const Layer& layer);

}  // namespace macaw::models
