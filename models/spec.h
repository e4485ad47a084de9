#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/run_config.h"
#include "core/vector.h"

namespace macaw::models {

// A model is a list of layers, for the built-in names as for a user's `[model] layers`. Torch-free:
// the server makes the initial vector, checks layouts and counts parameters without linking
// LibTorch; a fused trainer composes its kernels from the same list.
struct Conv2d {
  int64_t in = 0, out = 0, kernel = 0, stride = 1, padding = 0;
  bool bias = true;
};
struct Linear {
  int64_t in = 0, out = 0;
  bool bias = true;
};
struct MaxPool2d {
  int64_t kernel = 2, stride = 2;
};
struct AvgPool2d {
  int64_t kernel = 2, stride = 2;
};
struct GlobalAvgPool {};
struct Flatten {};
struct Relu {};
struct Tanh {};
struct Sigmoid {};
struct Dropout {
  double p = 0.5;
};
struct GroupNorm {
  int64_t groups = 0, channels = 0;
};
// Of images per channel, of vectors per element; its running statistics are buffers.
struct BatchNorm {
  int64_t channels = 0;
};
// Two 3×3 convolutions with group or batch norm and a skip (1×1 convolution where shapes differ):
// ResNet's basic block.
struct BasicBlock {
  int64_t in = 0, out = 0, stride = 1, groups = 2;
  bool batch_norm = false;  // instead of group norm
};
// Of sequences: tokens to vectors, and vectors to states, position by position.
struct Embedding {
  int64_t tokens = 0, out = 0;
};
struct Lstm {
  int64_t in = 0, out = 0, layers = 1;
};

using Layer = std::variant<Conv2d, Linear, MaxPool2d, AvgPool2d, GlobalAvgPool, Flatten, Relu, Tanh,
                           Sigmoid, Dropout, GroupNorm, BasicBlock, BatchNorm, Embedding, Lstm>;

struct ModelSpec {
  std::string name;
  std::vector<int64_t> input_shape;          // one example
  std::vector<Layer> layers;                 // sizes filled in
  std::vector<std::vector<int64_t>> shapes;  // shapes[i]: output of layer i for one example
  int64_t outputs = 0;    // elements of the last layer's output; of sequences, of one position
  int64_t positions = 0;  // of sequences: outputs per example, one a position; 0: not a sequence
  LayoutPtr layout;       // names and shapes are PyTorch's: "0.weight", "0.bias", ...

  // Where layer i's own parameters, and buffers, are in layout->entries() (first, count).
  std::vector<std::pair<size_t, size_t>> tensors;
  std::vector<std::pair<size_t, size_t>> buffers;
  bool move_buffers = true;  // false: batch norm works with its running statistics, always
  // A scripted module (models/script.h), which has no layers: its file's bytes. Null until a node
  // that trains has read them.
  std::shared_ptr<const std::string> script;

  bool takes_tokens() const {
    return !layers.empty() && std::holds_alternative<Embedding>(layers[0]);
  }
  bool has_buffers() const;
  bool is_script() const { return layers.empty(); }
};

// Parses, infers every size from the input shape, and checks that the model ends in `classes`
// outputs. An error names the layer by number and text, the shape that arrived there, and what
// would fit.
absl::StatusOr<ModelSpec> BuildSpec(const ModelConfig& config, DType dtype);

// PyTorch's default initialisation (weights and biases uniform in ±1/√fan_in, norms 1 and 0,
// embeddings standard normal), from the seed alone: each tensor has a stream of its own, so the
// values do not depend on the order of anything.
FlatVector InitialModel(const ModelSpec& spec, uint64_t seed);

struct NamedModel {
  std::string name;
  std::string summary;              // a line for `macaw models`
  std::vector<std::string> layers;  // as a user would write them, for an image of 10 classes
};
// The built-ins, in the order they are listed to people.
std::vector<NamedModel> NamedModels();

}  // namespace macaw::models
