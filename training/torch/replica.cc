#include "training/torch/replica.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/buffer.h"
#include "models/network.h"

namespace macaw::training {

at::Tensor FlatTensor(VectorView vector) {
  const at::ScalarType type = vector.dtype() == DType::kF32 ? at::kFloat : at::kDouble;
  const size_t count = vector.bytes.size() / SizeOf(vector.dtype());
  return at::from_blob(vector.bytes.data(), {static_cast<int64_t>(count)}, at::dtype(type));
}

at::Tensor FlatTensor(ConstVectorView vector) {
  return FlatTensor(VectorView{vector.layout,
                               {const_cast<std::byte*>(vector.bytes.data()), vector.bytes.size()}});
}

at::Tensor FlatTensorAnywhere(ConstVectorView vector) {
  const auto address = reinterpret_cast<uintptr_t>(vector.bytes.data());
  const at::Tensor flat = FlatTensor(vector);
  return address % AlignedBuffer::kAlignment == 0 ? flat : flat.clone();
}

Replica::Replica(LayoutPtr layout, at::Device device)
    : layout_(std::move(layout)), device_(device) {
  std::vector<at::Tensor> gradients;
  if (device_.is_cpu()) {
    values_ = FlatVector(layout_);
    gradient_ = FlatVector(layout_);
    flat_values_ = FlatTensor(values_.view());
    flat_gradient_ = FlatTensor(gradient_.view());
    parameters_ = models::ViewsOf(values_.view());
    gradients = models::ViewsOf(gradient_.view());
  } else {
    const auto count = static_cast<int64_t>(layout_->bytes() / SizeOf(layout_->dtype()));
    const at::ScalarType type = layout_->dtype() == DType::kF32 ? at::kFloat : at::kDouble;
    flat_values_ = at::zeros({count}, at::dtype(type).device(device_));
    flat_gradient_ = at::zeros_like(flat_values_);
    parameters_ = models::ViewsOf(flat_values_, *layout_);
    gradients = models::ViewsOf(flat_gradient_, *layout_);
  }
  reached_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (IsBuffer(i)) continue;
    parameters_[i].requires_grad_(true);
    parameters_[i].mutable_grad() = gradients[i];
    parameters_[i].register_hook([this, i](const at::Tensor& gradient) {
      if (gradient.defined()) reached_[i] = true;
    });
  }
}

void Replica::Load(ConstVectorView point) {
  if (!device_.is_cpu()) {
    const at::NoGradGuard without_graph;
    flat_values_.copy_(FlatTensor(point));
    return;
  }
  // memmove, because a caller may start from the end of the last run, which is this very vector.
  std::memmove(values_.view().bytes.data(), point.bytes.data(), point.bytes.size());
}

void Replica::LoadEntry(size_t entry, ConstVectorView point) {
  const LayoutEntry& e = layout_->entries()[entry];
  const auto offset = static_cast<int64_t>(e.offset), size = static_cast<int64_t>(e.size);
  const at::NoGradGuard without_graph;
  flat_values_.narrow(0, offset, size).copy_(FlatTensor(point).narrow(0, offset, size));
}

void Replica::SetTrainable(const std::vector<bool>* trainable) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_requires_grad(!IsBuffer(i) && (trainable == nullptr || (*trainable)[i]));
  }
}

bool Replica::IsBuffer(size_t entry) const {
  return layout_->entries()[entry].group == Group::kBuffer;
}

void Replica::ZeroGradient() {
  if (!device_.is_cpu()) {
    flat_gradient_.zero_();
    return;
  }
  const std::span<std::byte> bytes = gradient_.view().bytes;
  std::memset(bytes.data(), 0, bytes.size());
}

VectorView Replica::values() {
  if (device_.is_cpu()) return values_.view();
  if (values_.empty()) values_ = FlatVector(layout_);
  FlatTensor(values_.view()).copy_(flat_values_);
  return values_.view();
}

VectorView Replica::gradient() {
  if (device_.is_cpu()) return gradient_.view();
  if (gradient_.empty()) gradient_ = FlatVector(layout_);
  FlatTensor(gradient_.view()).copy_(flat_gradient_);
  return gradient_.view();
}

void Replica::PutGradient() {
  if (!device_.is_cpu()) flat_gradient_.copy_(FlatTensor(gradient_.view()));
}

}  // namespace macaw::training
