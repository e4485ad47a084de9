#include "training/torch/replica.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

#include "models/network.h"

namespace macaw::training {

Replica::Replica(LayoutPtr layout)
    : values_(layout), gradient_(std::move(layout)), parameters_(models::ViewsOf(values_.view())) {
  const std::vector<at::Tensor> gradients = models::ViewsOf(gradient_.view());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (IsBuffer(i)) continue;
    parameters_[i].requires_grad_(true);
    parameters_[i].mutable_grad() = gradients[i];
  }
}

void Replica::Load(ConstVectorView point) {
  // memmove, because a caller may start from the end of the last run, which is this very vector.
  std::memmove(values_.view().bytes.data(), point.bytes.data(), point.bytes.size());
}

void Replica::SetTrainable(const std::vector<bool>* trainable) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_requires_grad(!IsBuffer(i) && (trainable == nullptr || (*trainable)[i]));
  }
}

bool Replica::IsBuffer(size_t entry) const {
  return values_.layout()->entries()[entry].group == Group::kBuffer;
}

void Replica::ZeroGradient() {
  const std::span<std::byte> bytes = gradient_.view().bytes;
  std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace macaw::training
