#pragma once

#include <ATen/core/stack.h>

#include <span>

namespace macaw::models {

// LibTorch's ops that drop at random, and ours for each, which draws its masks from the stream of
// MasksFrom (script_random.h): dropout of numbers, of whole channels and for SELU, the dropout of
// attention's weights, that between recurrent layers, stochastic depth, and RReLU's slopes. Without
// a stream they drop nothing, whatever their arguments say. An op of ours has the arguments of
// LibTorch's.
struct RandomOp {
  const char* theirs;               // with its overload: "aten::lstm.input"
  const char* schema;               // ours: "macaw::lstm_input(Tensor input, …) -> …"
  void (*run)(torch::jit::Stack&);  // takes the arguments off the stack, leaves the results
};
std::span<const RandomOp> RandomOps();

}  // namespace macaw::models
