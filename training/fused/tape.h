#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/vector.h"
#include "training/fused/program.h"

namespace macaw::training::fused {

// The buffers of one batch's forward and backward pass, allocated for the largest batch so far and
// reused. One thread at a time; the program must outlive it.
class Tape {
 public:
  explicit Tape(const Program& program) : program_(program) {}

  // Makes room for n examples. The contents are lost if the buffers must grow.
  void Reserve(size_t n);
  // [n, program.in().stride()]: the batch, to be written before Forward.
  float* in() { return buffer_.As<float>().data(); }
  // [n, program.out().stride()]: the gradient of the last block's output, to be written before
  // Backward, which overwrites it.
  float* d_out() { return At(d_even_); }

  // Returns the output of the last block, valid until the next call. `dropout` null: no dropout.
  const float* Forward(size_t n, std::span<const float> weights, RandomStream* dropout);

  // What to do with a block's gradient.
  enum class Wish { kNothing, kGradient, kStep };

  // The backward pass, from the last block to block `first`. Before each block it calls
  // wish(block), which decides whether the gradient is written to `gradient`, used by `step` (only
  // for blocks with can_step()) or not computed. wanted(block): of which of its tensors
  // (BackwardPass::wanted). After each block it calls done(block).
  template <typename WishOf, typename Wanted, typename Done>
  void Backward(size_t n, std::span<float> weights, std::span<float> gradient, size_t first,
                const PlainStep& step, const WishOf& wish, const Wanted& wanted, const Done& done) {
    for (size_t i = program_.steps().size(); i-- > first;) {
      const Wish wished = wish(i);
      BackwardBlock(i, n, weights, wished == Wish::kGradient ? gradient.data() : nullptr, wanted(i),
                    wished == Wish::kStep ? &step : nullptr, i > first);
      done(i);
    }
  }

 private:
  struct Places {  // in floats from the buffer's start
    size_t out = 0;
    size_t kept = 0;
  };

  float* At(size_t place) { return buffer_.As<float>().data() + place; }
  void BackwardBlock(size_t index, size_t n, std::span<float> weights, float* gradient,
                     uint32_t wanted, const PlainStep* step, bool d_in);

  const Program& program_;
  size_t capacity_ = 0;
  AlignedBuffer buffer_;
  std::vector<Places> places_;  // per block
  size_t scratch_ = 0;
  // The gradients of activations alternate between two buffers.
  size_t d_even_ = 0, d_odd_ = 0;
};

}  // namespace macaw::training::fused
