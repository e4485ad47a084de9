#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/vector.h"
#include "training/fused/block.h"
#include "training/fused/isa.h"

namespace macaw::training::fused {

// 64-byte aligned floats that a test fills.
class Buffer {
 public:
  explicit Buffer(size_t count, float value = 0) : bytes_((count + 1) * sizeof(float)) {
    std::fill_n(data(), count, value);
  }
  float* data() { return bytes_.As<float>().data(); }
  float& operator[](size_t i) { return data()[i]; }
  std::vector<float> First(size_t count) { return {data(), data() + count}; }

 private:
  AlignedBuffer bytes_;
};

// A block's inputs and outputs; everything that it must not rely on is filled with garbage.
class BlockRig {
 public:
  BlockRig(const Block& block, size_t n, uint64_t seed, float garbage = 77.0f)
      : block_(block),
        n_(n),
        in_(n * block.in().stride()),
        out_(n * block.out().stride(), garbage),
        kept_(block.kept(n), garbage),
        scratch_(block.scratch(n), garbage),
        d_out_(n * block.out().stride()),
        d_in_(n * block.in().stride(), garbage) {
    for (const PackedTensor& tensor : block.tensors()) weights_size_ = tensor.offset + tensor.size;
    RandomStream stream({.seed = seed});
    Draw(stream, block.in(), in_);
    weights_.emplace_back(weights_size_, garbage);
    gradient_.emplace_back(weights_size_, garbage);
    direction_ = Buffer(n * block.out().stride());
    Draw(stream, block.out(), direction_);
  }

  // PyTorch's tensors of these sizes, drawn from `seed`, packed.
  void DrawWeights(const std::vector<size_t>& sizes, uint64_t seed, double scale = 0.5) {
    RandomStream stream({.seed = seed});
    std::vector<std::vector<float>> tensors;
    std::vector<const float*> pointers;
    for (const size_t size : sizes) {
      tensors.emplace_back(size);
      for (float& value : tensors.back()) value = static_cast<float>(scale * stream.Normal());
    }
    for (const std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
    block_.Pack(pointers, weights());
  }

  void Forward(RandomStream* dropout = nullptr) {
    block_.Forward({.n = n_,
                    .in = in(),
                    .out = out(),
                    .weights = weights(),
                    .kept = kept_.data(),
                    .scratch = scratch_.data(),
                    .dropout = dropout});
  }
  // Of the sum of out · direction. `wanted`: of these tensors.
  void Backward(uint32_t wanted = ~uint32_t{0}) {
    std::copy_n(direction_.data(), n_ * block_.out().stride(), d_out_.data());
    block_.Backward({.n = n_,
                     .in = in(),
                     .out = out(),
                     .weights = weights(),
                     .kept = kept_.data(),
                     .scratch = scratch_.data(),
                     .d_out = d_out_.data(),
                     .d_in = d_in(),
                     .gradient = gradient(),
                     .wanted = wanted});
  }
  // Σ out · direction, which Backward differentiates.
  double Value() {
    double sum = 0;
    for (size_t i = 0; i < n_ * block_.out().stride(); ++i) {
      sum += static_cast<double>(out_[i]) * direction_[i];
    }
    return sum;
  }

  float* in() { return in_.data(); }
  float* out() { return out_.data(); }
  float* d_in() { return d_in_.data(); }
  float* direction() { return direction_.data(); }
  float* weights() { return weights_[0].data(); }
  float* gradient() { return gradient_[0].data(); }
  size_t weights_size() const { return weights_size_; }
  size_t in_size() const { return n_ * block_.in().stride(); }
  size_t out_size() const { return n_ * block_.out().stride(); }

 private:
  // Zeros where the shape has padding.
  void Draw(RandomStream& stream, const Shape& shape, Buffer& buffer) {
    for (size_t r = 0; r < n_; ++r) {
      for (size_t i = 0; i < shape.elements(); ++i) {
        buffer[r * shape.stride() + shape.At(i)] = static_cast<float>(stream.Normal());
      }
    }
  }

  const Block& block_;
  const size_t n_;
  size_t weights_size_ = 0;
  Buffer in_, out_, kept_, scratch_, d_out_, d_in_;
  std::vector<Buffer> weights_, gradient_;
  Buffer direction_{0};
};

// The derivative by each number of `at`, by central differences. Zeros are padding.
inline void ExpectDerivatives(BlockRig& rig, float* at, const float* gradient, size_t count,
                              double tolerance) {
  for (size_t i = 0; i < count; ++i) {
    const float before = at[i];
    if (before == 0) continue;  // padding
    const float step = 0.01f;
    at[i] = before + step;
    rig.Forward();
    const double up = rig.Value();
    at[i] = before - step;
    rig.Forward();
    const double down = rig.Value();
    at[i] = before;
    ASSERT_NEAR(gradient[i], (up - down) / (2.0 * step), tolerance) << "number " << i;
  }
}

inline std::string IsaName(const testing::TestParamInfo<Isa>& info) {
  return std::string(Name(info.param));
}

}  // namespace macaw::training::fused
