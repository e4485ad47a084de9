#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/vector.h"
#include "models/spec.h"

namespace macaw::models {

// How much of a model a client trains: the first ⌈rate·n⌉ of the n channels that each hidden layer
// puts out, and so of those that the next one takes (Diao, Ding, Tarokh, "HeteroFL", ICLR 2021,
// section 3). Inputs and outputs of the model stay whole.
struct Width {
  double rate = 1;  // 0 < rate ≤ 1
  // While it trains, the output of each hidden layer is divided by the rate (the scaler).
  bool scaled = false;

  bool whole() const { return rate == 1; }
  friend bool operator==(const Width&, const Width&) = default;
};

// ⌈rate·n⌉, at least 1. A product within two roundings of a whole number is that number.
int64_t ChannelsOf(int64_t n, double rate);

// The narrower model of the same layers, with the whole one's names of tensors. Where the scaler
// stands, there is a Scale: behind a hidden convolution or linear layer and the ReLU and max pool
// that follow it, which a positive factor may pass. Errors name a layer that cannot be narrowed by
// number and kind, and what would fit.
//
// Behind "flatten" the channels of an image are blocks of height · width numbers, so a linear layer
// there takes the first ⌈rate·n⌉ blocks.
absl::StatusOr<ModelSpec> SliceOf(const ModelSpec& whole, Width width);

// The layer whose outputs are the model's: the last convolution or linear layer.
size_t OutputLayerOf(const ModelSpec& spec);

// The narrower model's values in a vector of the whole one's layout, and back. `part` has a layout
// of SliceOf: each of its tensors is the first rows, and of those the first columns, of the tensor
// with the same place. Same dtype; asserted.
void ExtractSlice(ConstVectorView whole, VectorView part);
void InsertSlice(ConstVectorView part, VectorView whole);

// Multiplies the weights and biases before each Scale of the slice by its factor. What stands
// between them passes a positive factor, so the slice without its Scales then computes what it
// computed with them. `part` has the slice's layout.
void FoldScales(const ModelSpec& slice, VectorView part);

}  // namespace macaw::models
