#include "models/script_segments.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "models/recompute.h"
#include "models/script_cuts.h"
#include "models/script_random.h"

namespace macaw::models {
namespace {

using at::Tensor;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

// The mode of the module as a constant, so that what depends on it is no branch.
void SetMode(torch::jit::Graph& graph, Block& block, bool training) {
  for (auto node = block.nodes().begin(); node != block.nodes().end();) {
    for (Block* inner : node->blocks()) SetMode(graph, *inner, training);
    if (node->kind() == c10::prim::GetAttr && node->s(c10::attr::name) == "training" &&
        node->output()->type()->kind() == c10::TypeKind::BoolType) {
      const torch::jit::WithInsertPoint here(*node);
      node->output()->replaceAllUsesWith(graph.insertConstant(training));
      node.destroyCurrent();  // and goes on
    } else {
      ++node;
    }
  }
}

[[noreturn]] void Refuse(const char* what) {
  throw std::invalid_argument(std::string("local.checkpoint: the scripted module ") + what +
                              ", so no part of it can be computed again: take it out");
}

bool IsObject(const Value* value) {
  return value->type()->kind() == c10::TypeKind::ClassType ||
         value->type()->kind() == c10::TypeKind::InterfaceType;
}

// Collects constants, and attributes that are reached from the module by their names.
void CollectReads(Block& block, std::unordered_set<const Value*>& known,
                  std::vector<Node*>& reads) {
  for (Node* const node : block.nodes()) {
    if (node->kind() == c10::prim::SetAttr) Refuse("sets attributes of its own");
    if (node->kind() == c10::prim::Constant ||
        (node->kind() == c10::prim::GetAttr && known.contains(node->input()))) {
      if (node->kind() == c10::prim::Constant && !torch::jit::toIValue(node->output()))
        Refuse("hands on functions");
      known.insert(node->output());
      reads.push_back(node);
      continue;
    }
    if (std::ranges::any_of(node->inputs(), IsObject)) Refuse("hands on objects");
    for (Block* inner : node->blocks()) CollectReads(*inner, known, reads);
  }
}

// Whether a list, tuple or dict has tensors, whose gradients would not be seen.
bool HidesTensors(const c10::IValue& value) {
  if (value.isObject() || value.isTensor()) return false;
  return value.isTensorList() ||
         (value.isTuple() && !value.toTupleRef().elements().empty() &&
          value.toTupleRef().elements()[0].isTensor()) ||
         value.isGenericDict();
}

}  // namespace

ScriptSegments::ScriptSegments(const torch::jit::Module& module, bool training) : module_(module) {
  graph_ = torch::jit::toGraphFunction(module.get_method("forward").function()).graph()->copy();
  if (graph_->inputs().size() != 2) Refuse("takes more than a batch");
  SetMode(*graph_, *graph_->block(), training);
  torch::jit::ConstantPropagation(graph_);

  std::unordered_set<const Value*> known = {graph_->inputs()[0]};
  CollectReads(*graph_->block(), known, reads_);
  const std::unordered_set<const Node*> in_front(reads_.begin(), reads_.end());
  std::vector<Node*> nodes;
  for (Node* const node : graph_->nodes())
    if (!in_front.contains(node)) nodes.push_back(node);
  if (nodes.empty()) Refuse("computes nothing");
  for (Node* const read : reads_) read->moveBefore(nodes.front());
  Values values = Reads(Tensor());
  for (const Node* const read : reads_)
    if (HidesTensors(values.at(read->output()))) Refuse("keeps tensors in lists");

  const ScriptCuts cuts = CutsOf(*graph_, nodes);
  size_t begin = 0;
  for (size_t i = 0; i < cuts.ends.size(); ++i) {
    segments_.push_back(
        SegmentOf(std::span(nodes).subspan(begin, cuts.ends[i] - begin), cuts.outputs[i]));
    begin = cuts.ends[i];
  }
}

ScriptSegments::Segment ScriptSegments::SegmentOf(std::span<Node* const> nodes,
                                                  std::span<const Value* const> outputs) const {
  auto graph = std::make_shared<torch::jit::Graph>();
  std::unordered_map<const Value*, Value*> inside;
  Segment segment;
  const auto find = [&](Value* outer) {
    const auto found = inside.find(outer);
    if (found != inside.end()) return found->second;
    Value* const input = graph->addInput();
    input->setType(outer->type());
    segment.inputs.push_back(outer);
    // Gradients of a tensor's uses are added up outside, in the order of the whole graph.
    if (outer->type()->kind() != c10::TypeKind::TensorType) inside[outer] = input;
    return input;
  };
  for (Node* const node : nodes) {
    Node* const copy = graph->appendNode(graph->createClone(node, find));
    for (size_t k = 0; k < node->outputs().size(); ++k)
      inside[node->outputs()[k]] = copy->outputs()[k];
  }
  for (const Value* const output : outputs) {
    graph->registerOutput(inside.at(output));
    segment.outputs.push_back(output);
  }
  segment.executor = torch::jit::GraphExecutor(graph, "forward");
  return segment;
}

ScriptSegments::Values ScriptSegments::Reads(const Tensor& batch) const {
  Values values = {{graph_->inputs()[0], module_._ivalue()}, {graph_->inputs()[1], batch}};
  for (const Node* const read : reads_) {
    values[read->output()] =
        read->kind() == c10::prim::Constant
            ? *torch::jit::toIValue(read->output())
            : values.at(read->input()).toObjectRef().getAttr(read->s(c10::attr::name));
  }
  return values;
}

c10::IValue ScriptSegments::Forward(const Tensor& batch, std::span<const Tensor> buffers,
                                    RandomStream* dropout) const {
  Values values = Reads(batch);
  for (const Segment& segment : segments_) {
    if (&segment != &segments_.back()) {
      RunAgain(segment, buffers, dropout, values);
      continue;
    }
    torch::jit::Stack stack;  // the last segment keeps everything
    for (const Value* const input : segment.inputs) stack.push_back(values.at(input));
    segment.executor.run(stack);
    for (size_t k = 0; k < segment.outputs.size(); ++k)
      values[segment.outputs[k]] = std::move(stack[k]);
  }
  return values.at(graph_->outputs().at(0));
}

void ScriptSegments::RunAgain(const Segment& segment, std::span<const Tensor> buffers,
                              RandomStream* dropout, Values& values) {
  torch::jit::Stack plain;  // without tensors, whose graphs would stay
  std::vector<Tensor> inputs;
  std::vector<size_t> places;
  std::vector<bool> moves;  // of each of `inputs`: whether a pass may move it
  for (const Value* const input : segment.inputs) {
    const c10::IValue& value = values.at(input);
    const bool tensor = value.isTensor() && value.toTensor().defined();
    if (tensor) places.push_back(plain.size());
    plain.push_back(tensor ? c10::IValue() : value);
  }
  std::ranges::reverse(places);  // as the backward pass goes
  for (const size_t place : places) {
    inputs.push_back(values.at(segment.inputs[place]).toTensor());
    moves.push_back(std::ranges::any_of(
        buffers, [&](const Tensor& buffer) { return buffer.is_same(inputs.back()); }));
  }
  std::optional<RandomStream> masks;
  if (dropout != nullptr) masks = *dropout;
  const auto results = std::make_shared<torch::jit::Stack>();  // of the first time
  const Part part = [&executor = segment.executor, plain, places, moves, masks, results](
                        std::span<const Tensor> given, bool again) {
    torch::jit::Stack stack = plain;
    for (size_t k = 0; k < given.size(); ++k)
      stack[places[k]] = again && moves[k] ? given[k].clone() : given[k];
    std::optional<RandomStream> same = masks;
    std::optional<MasksFrom> drawing;
    if (again && same) drawing.emplace(&*same);
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    executor.run(stack);
    std::vector<Tensor> tensors;
    for (c10::IValue& value : stack) {
      if (!value.isTensor()) continue;
      tensors.push_back(value.toTensor());
      value = c10::IValue();
    }
    if (!again) *results = std::move(stack);
    return tensors;
  };
  const std::vector<bool> is_tensor = [&] {
    std::vector<bool> kinds;
    for (const Value* const output : segment.outputs)
      kinds.push_back(output->type()->kind() == c10::TypeKind::TensorType);
    return kinds;
  }();
  const std::vector<Tensor> tensors = Recomputed(part, std::move(inputs));
  for (size_t k = 0, next = 0; k < segment.outputs.size(); ++k)
    values[segment.outputs[k]] = is_tensor[k] ? c10::IValue(tensors.at(next++)) : (*results)[k];
}

}  // namespace macaw::models
