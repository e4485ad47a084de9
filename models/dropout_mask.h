#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/vector.h"

namespace macaw::models {

// Each element is 0 or 1/(1−p), so that the expectation is unchanged.
inline at::Tensor DropoutMask(const at::Tensor& like, double p, RandomStream& stream) {
  at::Tensor mask = at::empty(like.sizes(), like.options().requires_grad(false));
  if (p >= 1) return mask.zero_();  // as PyTorch, and 1/(1−p) is no number
  const uint32_t dropped = static_cast<uint32_t>(std::ldexp(p, 32));  // out of 2^32 words
  const auto fill = [&]<typename T>(T) {
    const T kept = static_cast<T>(1.0 / (1.0 - p));
    for (T& m : std::span(mask.data_ptr<T>(), static_cast<size_t>(mask.numel()))) {
      m = stream.NextU32() < dropped ? T{0} : kept;
    }
  };
  DispatchDType(like.scalar_type() == at::kFloat ? DType::kF32 : DType::kF64, fill);
  return mask;
}

}  // namespace macaw::models
