#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/random.h"

namespace macaw::training::fused {

// The fused trainer is a chain of blocks over flat float buffers. A block is one layer of
// models::ModelSpec, or a few that are cheaper together (linear + relu, convolution + relu + pool).
//
// To add one: (1) foo.h declares `std::unique_ptr<Block> MakeFoo(Isa, layer(s), const Shape& in)`;
// (2) foo.cc holds the class once for each instruction set (targets.h shows the frame, linear.cc is
// the pattern); (3) program.cc says which run of layers becomes it; (4) tests/training/fused_*
// holds it against finite differences and the eager trainer on every instruction set.

constexpr size_t kLanes = 16;  // floats in 64 bytes
constexpr size_t RoundUp(size_t floats) { return (floats + kLanes - 1) / kLanes * kLanes; }

// How one example lies between two blocks. Planar is [channels][height][width], as data arrives.
// Interleaved is [height][width][pitch] with the channels in front of each pitch (the rest is
// zero): a block may put out either, the next one takes what it gets (a linear block permutes its
// weights as it packs them, which costs nothing). A flat vector of n is {1, 1, n}, planar. Examples
// of a batch are stride() floats apart, so that each starts on 64 bytes; the floats between size()
// and stride() are zero, in activations and in their gradients: whoever writes an example writes
// those, too.
struct Shape {
  enum class Order { kPlanar, kInterleaved };

  size_t channels = 1, height = 1, width = 1;
  Order order = Order::kPlanar;
  size_t pitch = 0;  // interleaved: floats a pixel, at least `channels`

  static Shape Flat(size_t n) { return {.width = n}; }
  size_t elements() const { return channels * height * width; }  // that mean something
  size_t size() const { return order == Order::kPlanar ? elements() : height * width * pitch; }
  size_t stride() const { return RoundUp(size()); }
  // Where the element lies that the planar order counts as `index`.
  size_t At(size_t index) const {
    if (order == Order::kPlanar) return index;
    return index % (height * width) * pitch + index / (height * width);
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// One batch on its way forward. All pointers are aligned to 64 bytes.
struct ForwardPass {
  size_t n = 0;                     // examples: 1 up to the batch the buffers were sized for
  const float* in = nullptr;        // [n, in().stride()]
  float* out = nullptr;             // [n, out().stride()]; never `in`
  const float* weights = nullptr;   // the block's own, packed
  float* kept = nullptr;            // for the Backward of this batch; null: there will be none
  float* scratch = nullptr;         // anybody's between two calls
  RandomStream* dropout = nullptr;  // of the step, one word an element in layer order; null: none
};

// A step of plain SGD, w ← w − lr·(g + v + weight_decay·w): what a block may take while it has the
// gradient in registers.
struct PlainStep {
  float lr = 0;
  float weight_decay = 0;
  const float* v = nullptr;  // packed like the weights of the whole program; null: zero
};

// The same batch on its way back, with what Forward was given and made.
struct BackwardPass {
  size_t n = 0;
  const float* in = nullptr;
  const float* out = nullptr;
  const float* weights = nullptr;
  const float* kept = nullptr;
  float* scratch = nullptr;
  float* d_out = nullptr;     // gradient by `out`; the block may spoil it
  float* d_in = nullptr;      // to be written; null: nobody needs it
  float* gradient = nullptr;  // by `weights`, to be overwritten; null: not wanted
  // Where not null, `gradient` is null and the block moves its weights, here, instead. Only for
  // blocks that say can_step().
  const PlainStep* step = nullptr;
  float* stepped = nullptr;  // the same floats as `weights`
  const float* v = nullptr;  // the step's, of this block
};

// Where one of a block's tensors lies in its packed weights: its own piece, a multiple of 16
// floats.
struct PackedTensor {
  size_t offset = 0;
  size_t size = 0;
};

// Parameters are trained in an order of the block's choosing (transposed, padded to vectors), which
// they keep during a whole stage: the step, its momentum and its correction are element by element
// and do not mind. Floats of padding are zero, and so is their gradient.
//
// Bits depend on the instruction set, the values and n, never on addresses, on what the buffers
// held before, or on the thread. No allocation and no lock within a pass. Immutable, so one block
// may serve several threads, each with buffers of its own.
class Block {
 public:
  Block(const Shape& in, const Shape& out) : in_(in), out_(out) {}
  virtual ~Block() = default;

  const Shape& in() const { return in_; }
  const Shape& out() const { return out_; }

  // The block's tensors in the order of the run's layout, one after another from 0.
  virtual std::vector<PackedTensor> tensors() const { return {}; }
  // Writes all packed floats, those of padding as zeros. `tensors` are PyTorch's, one each.
  virtual void Pack(std::span<const float* const> /*tensors*/, float* /*packed*/) const {}
  virtual void Unpack(const float* /*packed*/, std::span<float* const> /*tensors*/) const {}

  // Floats wanted for a batch of n.
  virtual size_t kept(size_t /*n*/) const { return 0; }
  virtual size_t scratch(size_t /*n*/) const { return 0; }

  // Whether Backward takes plain steps itself; after what it needs the old weights for, and with
  // the bits of training::SgdStep.
  virtual bool can_step() const { return false; }

  virtual void Forward(const ForwardPass& pass) const = 0;
  virtual void Backward(const BackwardPass& pass) const = 0;

 private:
  Shape in_, out_;
};

}  // namespace macaw::training::fused
