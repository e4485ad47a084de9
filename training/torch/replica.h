#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/vector.h"

namespace macaw::training {

// A point in parameter space for autograd: a flat vector, a flat gradient, and leaf tensors that
// are views of both. (Buffers are views of the vector only; they are not in the graph.) Autograd
// adds to the gradient in place, so nothing is gathered or scattered. One thread at a time.
//
// On the host the flat tensors are the memory of the vectors that values() and gradient() give. On
// a device they are the device's, and the vectors are copies that are made when they are asked for.
class Replica {
 public:
  explicit Replica(LayoutPtr layout, at::Device device = at::kCPU);
  Replica(const Replica&) = delete;  // its tensors tell it what is reached
  Replica& operator=(const Replica&) = delete;

  void Load(ConstVectorView point);  // same layout
  // The tensor at this place of the layout as it is in `point`.
  void LoadEntry(size_t entry, ConstVectorView point);
  // Takes entries that are not trainable out of the graph, which saves their part of the backward
  // pass. Null: all are trainable.
  void SetTrainable(const std::vector<bool>* trainable);
  void ZeroGradient();
  // Which entries a backward pass has given a gradient since the last ForgetReached.
  const std::vector<bool>& reached() const { return reached_; }
  void ForgetReached() { reached_.assign(reached_.size(), false); }

  // Valid until the next call of the same function. On the host they may be written to.
  VectorView values();
  VectorView gradient();
  void PutGradient();  // after a change of the vector that gradient() gave

  // All numbers in a row, with the gaps of the layout. Not in the graph.
  const at::Tensor& flat_values() const { return flat_values_; }
  const at::Tensor& flat_gradient() const { return flat_gradient_; }
  std::span<const at::Tensor> parameters() const { return parameters_; }  // and buffers

 private:
  bool IsBuffer(size_t entry) const;

  const LayoutPtr layout_;
  const at::Device device_;
  FlatVector values_;  // on a device: allocated by the first values(); gradient_ likewise
  FlatVector gradient_;
  at::Tensor flat_values_, flat_gradient_;
  std::vector<at::Tensor> parameters_;
  std::vector<bool> reached_;
};

// The vector's numbers as a tensor without a copy. The bytes must outlive it.
at::Tensor FlatTensor(VectorView vector);
// The same for reading: LibTorch has no tensor over constant memory.
at::Tensor FlatTensor(ConstVectorView vector);
// The same, or its own copy where the bytes begin at no multiple of 64: other alignments give other
// bits in MKL.
at::Tensor FlatTensorAnywhere(ConstVectorView vector);

}  // namespace macaw::training
