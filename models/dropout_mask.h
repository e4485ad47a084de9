#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <span>

#include "core/random.h"
#include "core/vector.h"

namespace macaw::models {

// Each element is 0 or 1/(1−p), so that the expectation is unchanged. The mask is drawn on the
// host, so it is the same for every device that `like` may be on.
inline at::Tensor DropoutMask(const at::Tensor& like, double p, RandomStream& stream) {
  if (p >= 1) return at::zeros_like(like.detach());  // as PyTorch, and 1/(1−p) is no number
  const bool doubles = like.scalar_type() == at::kDouble;
  const at::Tensor mask = at::empty(like.sizes(), at::dtype(doubles ? at::kDouble : at::kFloat));
  const uint32_t dropped = static_cast<uint32_t>(std::ldexp(p, 32));  // out of 2^32 words
  const auto fill = [&]<typename T>(T) {
    const T kept = static_cast<T>(1.0 / (1.0 - p));
    for (T& m : std::span(mask.data_ptr<T>(), static_cast<size_t>(mask.numel()))) {
      m = stream.NextU32() < dropped ? T{0} : kept;
    }
  };
  DispatchDType(doubles ? DType::kF64 : DType::kF32, fill);
  return mask.to(like.device(), like.scalar_type());
}

}  // namespace macaw::models
