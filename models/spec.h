#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "plan/model.h"

namespace macaw::models {

// A model is a list of layers, for the built-in models as for a user's `[model] layers`. This file
// does not need LibTorch: the server makes the initial vector, checks layouts and counts parameters
// without it, and the fused trainer chooses its kernels by the same list.
struct Conv2d {
  int64_t in = 0, out = 0, kernel = 0, stride = 1, padding = 0;
  bool bias = true;
};
// How an adapter begins (models/adapters.h).
enum class AdapterStart : uint8_t { kZero, kPissa };
// A low-rank adapter of a linear map ([model] adapters; Hu et al. 2021, equation 3):
// y = x·Wᵀ + b + scale·(x·Aᵀ)·Bᵀ, with A [rank, in], B [out, rank] and scale = α/rank.
struct Adapter {
  int64_t rank = 0;  // 0: there is none
  double scale = 1;
  AdapterStart start = AdapterStart::kZero;
};
struct Linear {
  int64_t in = 0, out = 0;
  bool bias = true;
  Adapter adapter = {};
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
// For images per channel, for vectors per element. Its running statistics are buffers.
struct BatchNorm {
  int64_t channels = 0;
};
// ResNet's basic block: two 3×3 convolutions with group or batch norm, and a skip connection (a 1×1
// convolution where the shapes differ).
struct BasicBlock {
  int64_t in = 0, out = 0, stride = 1, groups = 2;
  bool batch_norm = false;  // instead of group norm
};
// Layers for sequences: tokens to vectors, and vectors to hidden states, position by position.
struct Embedding {
  int64_t tokens = 0, out = 0;
};
struct Lstm {
  int64_t in = 0, out = 0, layers = 1;
};
struct Gru {
  int64_t in = 0, out = 0, layers = 1;
};
// Adds a learned vector to each position.
struct Positions {
  int64_t count = 0, width = 0;
};
// A sequence becomes one vector: that of its last position in use, or the mean over those.
struct LastPosition {};
struct MeanOfPositions {};
// Over the last axis: of a vector, or of each position.
struct LayerNorm {
  int64_t width = 0;
};
struct Gelu {};
// Multi-head self-attention (Vaswani et al. 2017). Causal: a position sees itself and those before.
struct Attention {
  int64_t width = 0, heads = 1;
  bool causal = false;
  Adapter in_proj = {}, out_proj = {};
};
// A transformer's block with the norms in front (Xiong et al. 2020), as PyTorch's
// TransformerEncoderLayer with norm_first and GELU has it.
struct TransformerBlock {
  int64_t width = 0, heads = 1, ff = 0;
  bool causal = false;
  double dropout = 0;
  Adapter in_proj = {}, out_proj = {}, linear1 = {}, linear2 = {};
};
// factor·x. No text makes one: it is HeteroFL's scaler in a narrower model (models/slice.h).
struct Scale {
  double factor = 1;
};
struct Residual;

using Layer = std::variant<Conv2d, Linear, MaxPool2d, AvgPool2d, GlobalAvgPool, Flatten, Relu, Tanh,
                           Sigmoid, Dropout, GroupNorm, BasicBlock, BatchNorm, Embedding, Lstm, Gru,
                           Positions, LastPosition, MeanOfPositions, LayerNorm, Gelu, Attention,
                           TransformerBlock, Scale, Residual>;

// Adds what its layers make of an input to that input.
struct Residual {
  std::vector<Layer> layers;
  // The number of parameters, and of buffers, of each of them.
  std::vector<std::pair<size_t, size_t>> tensors;
};

// An adapter's tensors and the weight that it adapts, by entry of the layout.
struct AdaptedWeight {
  size_t weight = 0, a = 0, b = 0;
  Adapter adapter;
};

// Whether the layer draws random masks while it trains.
bool DrawsMasks(const Layer& layer);
// Whether a position's output depends on later positions.
bool LooksAhead(const Layer& layer);

struct ModelSpec {
  std::string name;
  std::vector<int64_t> input_shape;          // one example
  std::vector<Layer> layers;                 // sizes filled in
  std::vector<std::vector<int64_t>> shapes;  // shapes[i]: output of layer i for one example
  int64_t outputs = 0;    // elements of the last layer's output; for sequences, per position
  int64_t positions = 0;  // for sequences: number of outputs per example; 0: not a sequence
  LayoutPtr layout;       // names and shapes are PyTorch's: "0.weight", "0.bias", ...

  // The place of layer i's parameters, and of its buffers, in layout->entries(): (first, count).
  std::vector<std::pair<size_t, size_t>> tensors;
  std::vector<std::pair<size_t, size_t>> buffers;
  // One of each adapter, in the order of the layout.
  std::vector<AdaptedWeight> adapters;
  bool move_buffers = true;  // false: batch norm always uses its running statistics
  // Which tensors no client trains (ModelConfig::FrozenGlobs), by entry of the layout; empty: none.
  std::vector<bool> frozen;
  // The file's bytes of a scripted module (models/script.h), which has no layers. Null until a node
  // that trains has read them.
  std::shared_ptr<const std::string> script;
  // Whether the scripted module takes tokens. Its file does not say that, nor `positions`: a
  // trainer fills in what its data and its task need.
  bool script_takes_tokens = false;

  bool takes_tokens() const {
    return is_script() ? script_takes_tokens : std::holds_alternative<Embedding>(layers[0]);
  }
  // Whether a row is a sequence, of which a part may be in use: tokens, or [positions, width].
  bool takes_sequences() const {
    return takes_tokens() || (!is_script() && input_shape.size() == 2);
  }
  bool has_buffers() const;
  bool is_script() const { return layers.empty(); }
};

// Parses the layers, infers all sizes from the input shape, and checks that the model ends in
// `classes` outputs. An error names the layer by number and text, the shape it received, and what
// would fit.
absl::StatusOr<ModelSpec> BuildSpec(const ModelConfig& config, DType dtype);

// PyTorch's default initialisation: weights and biases uniform in ±1/√fan_in, norms 1 and 0,
// embeddings standard normal. Each tensor has a random stream of its own, derived from the seed, so
// the values do not depend on any order. A model with adapters has the values of the one without
// them, A as InitialAdapters of models/adapters.h says, and B zero.
FlatVector InitialModel(const ModelSpec& spec, uint64_t seed);

struct NamedModel {
  std::string name;
  std::string summary;              // one line for `macaw models`
  std::vector<std::string> layers;  // as a user would write them, for an image of 10 classes
};
// The built-in models, in the order in which they are listed.
std::vector<NamedModel> NamedModels();

}  // namespace macaw::models
