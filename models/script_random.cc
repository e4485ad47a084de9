#include "models/script_random.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/random_ops.h"

namespace macaw::models {
namespace {

void RegisterOps() {
  [[maybe_unused]] static const auto registered = [] {
    std::vector<std::optional<torch::jit::Operator>> operators;
    for (const RandomOp& op : RandomOps()) {
      operators.emplace_back(
          torch::jit::Operator(op.schema, op.run, c10::AliasAnalysisKind::CONSERVATIVE));
    }
    return torch::jit::RegisterOperators(std::move(operators));
  }();
}

// Our op for a node of LibTorch's; null: it drops nothing at random.
const RandomOp* OursFor(const torch::jit::Node& node) {
  if (!node.kind().is_aten() || node.maybeSchema() == nullptr) return nullptr;
  const std::string name = c10::toString(node.schema().operator_name());
  for (const RandomOp& op : RandomOps())
    if (name == op.theirs) return &op;
  return nullptr;
}

void Replace(torch::jit::Graph& graph, torch::jit::Node& node, const RandomOp& op) {
  const std::string schema = op.schema;
  torch::jit::Node* const ours =
      graph.create(c10::Symbol::fromQualString(schema.substr(0, schema.find('('))), node.inputs(),
                   node.outputs().size());
  ours->insertBefore(&node);
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    ours->outputs()[i]->setType(c10::TensorType::get());
    node.outputs()[i]->replaceAllUsesWith(ours->outputs()[i]);
  }
}

void ReplaceIn(torch::jit::Graph& graph, torch::jit::Block& block) {
  for (auto node = block.nodes().begin(); node != block.nodes().end();) {
    for (torch::jit::Block* inner : node->blocks()) ReplaceIn(graph, *inner);
    if (const RandomOp* const op = OursFor(**node)) {
      Replace(graph, **node, *op);
      node.destroyCurrent();  // and goes on
    } else {
      ++node;
    }
  }
}

// The kinds of ops that draw random numbers.
void CollectRandom(const torch::jit::Block& block, std::set<std::string>& kinds) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->isNondeterministic()) kinds.insert(node->kind().toQualString());
    for (const torch::jit::Block* inner : node->blocks()) CollectRandom(*inner, kinds);
  }
}

struct Attributes {
  std::set<std::string> set, read;
};

void CollectAttributes(const torch::jit::Block& block, Attributes& found) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::SetAttr) found.set.insert(node->s(c10::attr::name));
    if (node->kind() == c10::prim::GetAttr) found.read.insert(node->s(c10::attr::name));
    for (const torch::jit::Block* inner : node->blocks()) CollectAttributes(*inner, found);
  }
}

// A slot's module lives from turn to turn, and what it sets is no tensor of the run.
void RefuseMemory(const torch::jit::Graph& graph) {
  Attributes found;
  CollectAttributes(*graph.block(), found);
  found.set.erase("num_batches_tracked");  // of old norms, which take no part of it
  for (const std::string& name : found.set) {
    if (!found.read.contains(name)) continue;
    throw std::invalid_argument(absl::StrCat(
        "the scripted module sets its attribute ", name,
        " in forward and reads it, so that a client's turn would depend on those before it: keep "
        "it in a buffer of floats (register_buffer) that forward changes in place (self.",
        name, ".add_(1), and not self.", name,
        " += 1) or, within one pass, in a local variable; or train the module in Python (loss=f or "
        "train=f)"));
  }
}

}  // namespace

void DrawFromTheRun(torch::jit::Module& module) {
  RegisterOps();
  auto& forward = torch::jit::toGraphFunction(module.get_method("forward").function());
  const std::shared_ptr<torch::jit::Graph> graph = forward.graph();
  torch::jit::Inline(*graph);
  RefuseMemory(*graph);
  ReplaceIn(*graph, *graph->block());
  std::set<std::string> kinds;
  CollectRandom(*graph->block(), kinds);
  if (kinds.empty()) return;
  throw std::invalid_argument(absl::StrCat(
      "the scripted module draws random numbers (", absl::StrJoin(kinds, ", "),
      "), which no run could repeat: script it without them, or train it with "
      "code of your own; dropout of every kind, stochastic depth and RReLU can be repeated"));
}

}  // namespace macaw::models
