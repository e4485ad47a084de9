#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"

namespace macaw::training::fused {

// The fused trainer is a chain of blocks over flat float buffers. A block is one layer of
// models::ModelSpec, or several that are cheaper together (linear + relu, convolution + relu +
// pool).
//
// To add one: (1) foo.h declares `std::unique_ptr<Block> MakeFoo(Isa, layer(s), const Shape& in)`;
// (2) foo.cc defines the class, compiled for each instruction set (see core/isa_targets.h,
// linear.cc is an example); (3) program.cc decides which layers become this block; (4)
// tests/training/fused_* compare it with finite differences and with the eager trainer on every
// instruction set.

constexpr size_t kLanes = 16;  // floats in 64 bytes
constexpr size_t RoundUp(size_t floats) { return (floats + kLanes - 1) / kLanes * kLanes; }

// The memory layout of one example between two blocks. Planar is [channels][height][width], like
// the input data. Interleaved is [height][width][pitch], where the channels come first in each
// pitch and the rest is zero. A block may write either layout, and the next block accepts both (a
// linear block permutes its weights when it packs them, at no cost). A flat vector of n is {1, 1,
// n}, planar. A sequence is [height][pitch]: a line of `width` floats for each position, the rest
// of it zero, so that all positions of a batch are rows of one matrix.
//
// The examples of a batch are stride() floats apart, so that each starts at a multiple of 64 bytes.
// The floats between size() and stride() are zero, in activations and in gradients: a block that
// writes an example writes them, too.
struct Shape {
  enum class Order { kPlanar, kInterleaved, kSequence };

  size_t channels = 1, height = 1, width = 1;
  Order order = Order::kPlanar;
  size_t pitch = 0;  // interleaved: floats per pixel, at least `channels`; sequence: per position

  static Shape Flat(size_t n) { return {.width = n}; }
  static Shape Sequence(size_t positions, size_t width) {
    return {
        .height = positions, .width = width, .order = Order::kSequence, .pitch = RoundUp(width)};
  }
  size_t elements() const { return channels * height * width; }  // without padding
  size_t size() const {
    if (order == Order::kPlanar) return elements();
    return (order == Order::kSequence ? height : height * width) * pitch;
  }
  size_t stride() const { return RoundUp(size()); }
  // The place of the element whose number in planar order is `index`.
  size_t At(size_t index) const {
    if (order == Order::kPlanar) return index;
    if (order == Order::kSequence) return index / width * pitch + index % width;
    return index % (height * width) * pitch + index / (height * width);
  }
  // Whether all elements lie one after another in planar order.
  bool InOneLine() const {
    for (size_t i = 0; i < elements(); ++i) {
      if (At(i) != i) return false;
    }
    return true;
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// The forward pass of one batch. All pointers are 64-byte aligned.
struct ForwardPass {
  size_t n = 0;                    // number of examples: 1 up to the size of the buffers
  const float* in = nullptr;       // [n, in().stride()]
  float* out = nullptr;            // [n, out().stride()]; never `in`
  const float* weights = nullptr;  // the block's own, packed
  float* kept = nullptr;           // written for the Backward of this batch; null: there is none
  float* scratch = nullptr;        // not preserved between calls
  // Of the step, one word per element in layer order; null: no dropout.
  RandomStream* dropout = nullptr;
};

// A step of plain SGD, w ← w − lr·(g + v + weight_decay·w). A block may take it while the gradient
// is in registers.
struct PlainStep {
  float lr = 0;
  float weight_decay = 0;
  const float* v = nullptr;  // packed like the weights of the whole program; null: zero
};

// The backward pass of the same batch, with what Forward was given and computed.
struct BackwardPass {
  size_t n = 0;
  const float* in = nullptr;
  const float* out = nullptr;
  const float* weights = nullptr;
  const float* kept = nullptr;
  float* scratch = nullptr;
  float* d_out = nullptr;     // gradient of `out`; the block may overwrite it
  float* d_in = nullptr;      // to be written; null: not needed
  float* gradient = nullptr;  // gradient of `weights`, to be written; null: not needed
  // Bit i: whether that of tensors()[i] is needed. A block may leave the others as they are.
  uint32_t wanted = ~uint32_t{0};
  // If set, `gradient` is null, and the block updates its weights here instead. Only for blocks
  // with can_step().
  const PlainStep* step = nullptr;
  float* stepped = nullptr;  // the same memory as `weights`
  const float* v = nullptr;  // the step's v for this block

  bool Wants(size_t tensor) const { return (wanted >> tensor & 1) != 0; }
};

// The place of one of a block's tensors in its packed weights: a piece of its own, whose size is a
// multiple of 16 floats.
struct PackedTensor {
  size_t offset = 0;
  size_t size = 0;
};

// A layer, or a few, with a forward and a backward pass. Parameters are kept in an order of the
// block's choice (transposed, padded to vectors) during a whole stage; this is possible because the
// step, its momentum and its correction are element-wise. Padding is zero, and so is its gradient.
//
// Bits depend on the instruction set, the values and n, never on addresses, on what the buffers
// held before, or on the thread. A pass allocates nothing and takes no lock. Immutable, so several
// threads may use one block, each with its own buffers.
class Block {
 public:
  Block(const Shape& in, const Shape& out) : in_(in), out_(out) {}
  virtual ~Block() = default;

  const Shape& in() const { return in_; }
  const Shape& out() const { return out_; }

  // The block's tensors in the order of the run's layout, one after another, starting at 0.
  virtual std::vector<PackedTensor> tensors() const { return {}; }
  // Writes all packed floats, padding as zeros. `tensors` are PyTorch's, one pointer each.
  virtual void Pack(std::span<const float* const> /*tensors*/, float* /*packed*/) const {}
  virtual void Unpack(const float* /*packed*/, std::span<float* const> /*tensors*/) const {}

  // Floats to keep for the backward pass of a batch of n.
  virtual size_t kept(size_t /*n*/) const { return 0; }
  virtual size_t scratch(size_t /*n*/) const { return 0; }

  // Whether Backward can take plain steps itself. It does so after it has used the old weights,
  // with the same bits as training::SgdStep.
  virtual bool can_step() const { return false; }

  virtual void Forward(const ForwardPass& pass) const = 0;
  virtual void Backward(const BackwardPass& pass) const = 0;

 private:
  Shape in_, out_;
};

}  // namespace macaw::training::fused
