#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "models/spec.h"

namespace macaw::models {

// The initial value of a tensor: uniform in ±1/√fan_in, uniform in ±√(6 / (fan_in + fan_out))
// (Glorot and Bengio 2010), standard normal, normal with the variance of kUniform, 1/(3·fan_in), or
// a constant.
enum class Init : uint8_t { kUniform, kGlorot, kNormal, kNormalOfFanIn, kOne, kZero };

struct TensorPlan {
  std::string name;  // within its layer: "weight", "conv1.weight"
  std::vector<int64_t> shape;
  Init init = Init::kUniform;
  int64_t fan_in = 1;  // for kGlorot: fan_in + fan_out
  Group group = Group::kParameter;
  bool adapter = false;  // whether it is an adapter's
};

// The tensors of a layer: parameters in the order of PyTorch's named_parameters(), buffers in that
// of named_buffers() (without integer buffers), then A and B of each adapter. Layout,
// initialisation and forward pass all use this list. Requires a layer whose sizes are filled in.
std::vector<TensorPlan> TensorsOf(const Layer& layer);

// A linear map of a layer, which may have an adapter.
struct LinearMap {
  std::string weight;  // its tensor within the layer: "weight", "self_attn.in_proj_weight"
  int64_t in = 0, out = 0;
  Adapter* adapter = nullptr;  // in the layer
};
// All of them, in the order in which TensorsOf has their adapters.
std::vector<LinearMap> LinearMapsOf(Layer& layer);

// peft's name of an adapter's tensor: "0.lora_A.weight" of "0.weight", "1.self_attn.lora_A.weight"
// of "1.self_attn.in_proj_weight". `which`: 'A' or 'B'.
std::string AdapterTensor(absl::string_view weight, char which);

// Fills in Residual::tensors of the layer, and of those inside it.
void CountTensors(Layer& layer);

}  // namespace macaw::models
