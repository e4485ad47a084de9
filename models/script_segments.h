#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/random.h"

namespace macaw::models {

// The graph of a scripted module's forward pass in segments, which keep what comes into them and
// are computed again in the backward pass (recompute.h). It is cut where few tensors pass from one
// operation to the next, such as between the blocks of a transformer. The operations are those of
// the whole graph, in the same order. One thread at a time.
class ScriptSegments {
 public:
  // Of a module in this mode, after DrawFromTheRun (script_random.h). Throws std::invalid_argument
  // that says why its graph cannot be cut, or that no cut saves memory.
  ScriptSegments(const torch::jit::Module& module, bool training);

  // What the module's forward returns, with its tensors as they are now. `buffers` may move in the
  // pass, and not again in the backward pass. `dropout` is the stream of the active MasksFrom, or
  // null. *this must outlive the backward pass.
  c10::IValue Forward(const at::Tensor& batch, std::span<const at::Tensor> buffers,
                      RandomStream* dropout) const;

  size_t count() const { return segments_.size(); }

 private:
  using Value = torch::jit::Value;
  // No iteration over it: its order is that of addresses.
  using Values = std::unordered_map<const Value*, c10::IValue>;
  struct Segment {
    mutable torch::jit::GraphExecutor executor;
    // Values of the whole graph: a tensor once for each use, in the order of the uses.
    std::vector<const Value*> inputs, outputs;
  };

  Segment SegmentOf(std::span<torch::jit::Node* const> nodes,
                    std::span<const Value* const> outputs) const;
  Values Reads(const at::Tensor& batch) const;
  static void RunAgain(const Segment& segment, std::span<const at::Tensor> buffers,
                       RandomStream* dropout, Values& values);

  torch::jit::Module module_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<torch::jit::Node*> reads_;  // constants, and attributes of the module, in front
  std::vector<Segment> segments_;
};

}  // namespace macaw::models
