#include "bench/conv_eager.h"

#include <torch/torch.h>

#include <vector>

#include "bench/thread_clock.h"
#include "models/one_thread.h"

namespace macaw::bench {

double TimeEager(const training::fused::ConvPlan& plan, size_t batch, bool data) {
  models::UseOneThread();
  const auto size = [](size_t n) { return static_cast<int64_t>(n); };
  const auto leaf = [](at::IntArrayRef shape) { return torch::randn(shape).requires_grad_(true); };
  const at::Tensor x =
      torch::randn({size(batch), size(plan.in.channels), size(plan.in.height), size(plan.in.width)})
          .requires_grad_(data);
  const at::Tensor weight =
      leaf({size(plan.outputs), size(plan.in.channels), size(plan.kernel), size(plan.kernel)});
  const at::Tensor bias = leaf({size(plan.outputs)});
  std::vector<at::Tensor> wanted = {weight, bias};
  if (data) wanted.push_back(x);
  at::Tensor d_out;
  return Shortest([&] {
    at::Tensor y = at::conv2d(x, weight, bias, size(plan.stride), size(plan.padding));
    if (plan.relu) y = at::relu_(y);
    if (plan.pool > 1) y = at::max_pool2d(y, size(plan.pool));
    if (!d_out.defined()) d_out = at::randn_like(y);
    torch::autograd::grad({y}, wanted, {d_out});
  });
}

}  // namespace macaw::bench
