#pragma once

#include <map>
#include <string>

#include "plan/algorithm.h"
#include "plan/model.h"

namespace macaw::algorithms {

using Parameters = std::map<std::string, ParameterValue>;

// Convolution, pool, flatten and two linear layers; of 6 × 6 images and 3 classes. At rate 0.5 two
// of four channels and three of six units are left.
inline ModelConfig SmallNetwork() {
  ModelConfig config;
  config.name = "layers";
  config.layers = {"conv 4 3", "relu", "maxpool 2", "flatten", "linear 6", "relu", "linear 3"};
  config.input_shape = {1, 6, 6};
  config.classes = 3;
  return config;
}

}  // namespace macaw::algorithms
