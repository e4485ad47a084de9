#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "models/spec.h"
#include "training/fused/block.h"
#include "training/fused/isa.h"
#include "training/local_sgd.h"

namespace macaw::training::fused {

// A model's layers as a chain of blocks, and the place of each block's weights in one packed
// vector. Immutable, thread-safe.
class Program {
 public:
  // An error (kUnimplemented) names the first layer for which there is no block.
  static absl::StatusOr<Program> Compile(const models::ModelSpec& spec, Isa isa);

  struct Step {
    std::unique_ptr<const Block> block;
    size_t offset = 0;        // of its weights in the packed vector
    size_t size = 0;          // floats of its weights
    size_t first_tensor = 0;  // index in the layout
  };
  std::span<const Step> steps() const { return steps_; }
  const Shape& in() const { return steps_.front().block->in(); }
  const Shape& out() const { return steps_.back().block->out(); }
  size_t packed_size() const { return packed_size_; }

  // Converts between a flat vector of the model's layout and a packed, 64-byte aligned one, all of
  // which is written. Unpack does not change the layout's gaps and buffers.
  void Pack(ConstVectorView from, std::span<float> packed) const;
  void Unpack(std::span<const float> packed, VectorView to) const;

  // Which tensors of block `step` move: bit i for the i-th one.
  uint32_t TrainableTensors(size_t step, const std::vector<bool>* trainable) const;
  // The pieces of block `step` that move, in its packed weights. `trainable` is per layout entry;
  // null: all.
  Pieces TrainablePieces(size_t step, const std::vector<bool>* trainable) const;

 private:
  Program() = default;

  LayoutPtr layout_;
  std::vector<Step> steps_;
  size_t packed_size_ = 0;
};

}  // namespace macaw::training::fused
