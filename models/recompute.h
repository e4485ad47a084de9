#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

namespace macaw::models {

// A part of a pass as a function of tensors: what comes in, and parameters. It is called once or
// twice, and has to give the same bits both times: `again` says that it is the second time, when
// running statistics have moved and the masks to draw are those of the first time.
using Part = std::function<std::vector<at::Tensor>(std::span<const at::Tensor> inputs, bool again)>;

// The part's outputs, with a place in autograd's graph that keeps `inputs` alone: the backward pass
// calls the part again (activation checkpointing; Chen et al. 2016, arXiv 1604.06174). Gradients
// have the bits that the part in the graph would have, where each of `inputs` is used once. Where
// nothing asks for gradients, the part's outputs as they are. Autocast is the same both times. The
// gradient has no derivatives: it throws std::invalid_argument where they are asked for.
std::vector<at::Tensor> Recomputed(Part part, std::vector<at::Tensor> inputs);

}  // namespace macaw::models
