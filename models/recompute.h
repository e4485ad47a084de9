#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

namespace macaw::models {

// A part of a pass as a function of its input and its parameters. It is called once or twice, and
// has to give the same bits both times: `again` says that it is the second time, when running
// statistics have moved and the masks to draw are those of the first time.
using Part = std::function<at::Tensor(const at::Tensor& input,
                                      std::span<const at::Tensor> parameters, bool again)>;

// The part's output, with a place in autograd's graph that keeps `input` and `parameters` alone:
// the backward pass calls the part again (activation checkpointing; Chen et al. 2016, arXiv
// 1604.06174). Its gradients have the bits that the part in the graph would have. Where nothing
// asks for gradients, the part's output as it is. Autocast is the same both times. The gradient has
// no derivatives: it throws std::invalid_argument where they are asked for.
at::Tensor Recomputed(Part part, const at::Tensor& input, std::span<const at::Tensor> parameters);

}  // namespace macaw::models
