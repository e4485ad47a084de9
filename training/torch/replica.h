#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/vector.h"

namespace macaw::training {

// A point in parameter space for autograd: a flat vector, a flat gradient, and leaf tensors that
// are views of both. (Buffers are views of the vector only; they are not in the graph.) Autograd
// adds to the gradient in place, so nothing is gathered or scattered. One thread at a time.
class Replica {
 public:
  explicit Replica(LayoutPtr layout);

  void Load(ConstVectorView point);  // same layout
  // Takes entries that are not trainable out of the graph, which saves their part of the backward
  // pass. Null: all are trainable.
  void SetTrainable(const std::vector<bool>* trainable);
  void ZeroGradient();

  VectorView values() { return values_.view(); }
  VectorView gradient() { return gradient_.view(); }
  std::span<const at::Tensor> parameters() const { return parameters_; }  // and buffers

 private:
  bool IsBuffer(size_t entry) const;

  FlatVector values_;
  FlatVector gradient_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace macaw::training
