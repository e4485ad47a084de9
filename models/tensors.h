#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec.h"

namespace macaw::models {

// The initial value of a tensor: uniform in ±1/√fan_in, uniform in ±√(6 / (fan_in + fan_out))
// (Glorot and Bengio 2010), standard normal, or a constant.
enum class Init : uint8_t { kUniform, kGlorot, kNormal, kOne, kZero };

struct TensorPlan {
  std::string name;  // within its layer: "weight", "conv1.weight"
  std::vector<int64_t> shape;
  Init init = Init::kUniform;
  int64_t fan_in = 1;  // for kGlorot: fan_in + fan_out
  Group group = Group::kParameter;
};

// The tensors of a layer: parameters in the order of PyTorch's named_parameters(), buffers in that
// of named_buffers() (without integer buffers). Layout, initialisation and forward pass all use
// this list. Requires a layer whose sizes are filled in.
std::vector<TensorPlan> TensorsOf(const Layer& layer);

}  // namespace macaw::models
