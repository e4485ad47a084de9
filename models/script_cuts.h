#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <span>
#include <vector>

namespace macaw::models {

// Where the graph of a scripted module may be cut for activation checkpointing.
struct ScriptCuts {
  // The index behind each segment's last node, in order; the last one is all nodes' end.
  std::vector<size_t> ends;
  // Of each segment, the values that later ones use, or that the graph returns.
  std::vector<std::vector<const torch::jit::Value*>> outputs;
};

// `nodes` are those of the graph's own block that compute, in order; `reads` are constants and
// attributes of the module, which every segment may use. A cut lets tensors and plain values
// (numbers, words, lists of them) pass, and does not lie between a tensor and an operation that
// writes to its memory. Among those places the planner of segments.h chooses, by the number of
// tensors that pass and that are kept: sizes are not known. Throws std::invalid_argument where none
// saves memory.
ScriptCuts CutsOf(const torch::jit::Graph& graph, std::span<torch::jit::Node* const> nodes);

}  // namespace macaw::models
