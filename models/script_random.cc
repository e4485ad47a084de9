#include "models/script_random.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/dropout_mask.h"

namespace macaw::models {
namespace {

using at::Tensor;
using torch::jit::Stack;

thread_local RandomStream* masks_from = nullptr;

Tensor Dropped(const Tensor& x, double p) {
  return masks_from == nullptr || p == 0 ? x : x * DropoutMask(x, p, *masks_from);
}

// LibTorch's attention, written out where weights are dropped.
Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& seen,
              double p, bool causal, std::optional<double> scale, bool grouped) {
  if (masks_from == nullptr || p == 0)
    return at::scaled_dot_product_attention(q, k, v, seen, /*dropout_p=*/0.0, causal, scale,
                                            grouped);
  const bool repeats = grouped && q.size(-3) != k.size(-3);
  const Tensor keys = repeats ? k.repeat_interleave(q.size(-3) / k.size(-3), -3) : k;
  const Tensor values = repeats ? v.repeat_interleave(q.size(-3) / v.size(-3), -3) : v;
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  Tensor scores = at::matmul(q, keys.transpose(-2, -1)) * factor;
  if (causal) {
    const Tensor before =
        at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool).requires_grad(false))
            .tril();
    scores = scores.masked_fill(before.logical_not(), -HUGE_VAL);
  }
  if (seen.has_value() && seen->defined()) {
    scores = seen->scalar_type() == at::kBool ? scores.masked_fill(seen->logical_not(), -HUGE_VAL)
                                              : scores + *seen;
  }
  return at::matmul(Dropped(at::softmax(scores, -1), p), values);
}

constexpr char kDropout[] = "macaw::dropout", kAttention[] = "macaw::attention";

void RegisterOps() {
  static const torch::jit::RegisterOperators registered({
      torch::jit::Operator(
          absl::StrCat(kDropout, "(Tensor x, float p, bool train) -> Tensor"),
          [](Stack& stack) {
            const bool train = torch::jit::pop(stack).toBool();
            const double p = torch::jit::pop(stack).toDouble();
            const Tensor x = torch::jit::pop(stack).toTensor();
            torch::jit::push(stack, train ? Dropped(x, p) : x);
          },
          c10::AliasAnalysisKind::CONSERVATIVE),
      torch::jit::Operator(
          absl::StrCat(kAttention,
                       "(Tensor q, Tensor k, Tensor v, Tensor? seen, float p, bool causal, *, "
                       "float? scale, bool grouped) -> Tensor"),
          [](Stack& stack) {
            const bool grouped = torch::jit::pop(stack).toBool();
            const auto scale = torch::jit::pop(stack).toOptional<double>();
            const bool causal = torch::jit::pop(stack).toBool();
            const double p = torch::jit::pop(stack).toDouble();
            const auto seen = torch::jit::pop(stack).toOptional<Tensor>();
            const Tensor v = torch::jit::pop(stack).toTensor();
            const Tensor k = torch::jit::pop(stack).toTensor();
            const Tensor q = torch::jit::pop(stack).toTensor();
            torch::jit::push(stack, Attend(q, k, v, seen, p, causal, scale, grouped));
          },
          c10::AliasAnalysisKind::CONSERVATIVE),
  });
}

void Replace(torch::jit::Graph& graph, torch::jit::Node& node, const char* op) {
  torch::jit::Node* const ours = graph.create(c10::Symbol::fromQualString(op), node.inputs());
  ours->insertBefore(&node);
  ours->output()->setType(c10::TensorType::get());
  node.output()->replaceAllUsesWith(ours->output());
}

void ReplaceIn(torch::jit::Graph& graph, torch::jit::Block& block) {
  for (auto node = block.nodes().begin(); node != block.nodes().end();) {
    for (torch::jit::Block* inner : node->blocks()) ReplaceIn(graph, *inner);
    const bool dropout = node->kind() == c10::aten::dropout;
    const bool attention = node->kind() == c10::aten::scaled_dot_product_attention;
    if (dropout || attention) {
      Replace(graph, **node, dropout ? kDropout : kAttention);
      node.destroyCurrent();  // and goes on
    } else {
      ++node;
    }
  }
}

// Finds the ops of a forward pass that draw random numbers.
class RandomOps {
 public:
  // `graph`: the module's forward, with all calls inlined.
  RandomOps(const torch::jit::Module& module, std::shared_ptr<torch::jit::Graph> graph)
      : module_(module), graph_(std::move(graph)) {
    CollectSet(*graph_->block());
    Collect(*graph_->block());
  }
  const std::set<std::string>& kinds() const { return kinds_; }

 private:
  void CollectSet(const torch::jit::Block& block) {
    for (const torch::jit::Node* node : block.nodes()) {
      if (node->kind() == c10::prim::SetAttr) set_.insert(node->s(c10::attr::name));
      for (const torch::jit::Block* inner : node->blocks()) CollectSet(*inner);
    }
  }
  void Collect(const torch::jit::Block& block) {
    for (const torch::jit::Node* node : block.nodes()) {
      if (node->isNondeterministic() && !DropsNothing(*node))
        kinds_.insert(node->kind().toQualString());
      for (const torch::jit::Block* inner : node->blocks()) Collect(*inner);
    }
  }

  // Dropout with probability 0, such as that between recurrent layers, returns its input and draws
  // nothing.
  bool DropsNothing(const torch::jit::Node& node) const {
    for (const char* const name : {"p", "dropout_p", "dropout"})
      if (node.hasNamedInput(name)) return IsZero(*node.namedInput(name));
    return false;
  }
  bool IsZero(const torch::jit::Value& value) const {
    const torch::jit::Node* const node = value.node();
    if (node->kind() == c10::prim::If) {  // "p if self.training else 0.0"
      return std::ranges::all_of(node->blocks(), [&](const torch::jit::Block* branch) {
        return IsZero(*branch->outputs().at(value.offset()));
      });
    }
    const std::optional<c10::IValue> known = ValueOf(value);
    return known && known->isDouble() && known->toDouble() == 0;
  }
  // A constant, or an attribute that has the value in the file as long as the module lives.
  std::optional<c10::IValue> ValueOf(const torch::jit::Value& value) const {
    if (&value == graph_->inputs().at(0)) return module_._ivalue();
    const torch::jit::Node* const node = value.node();
    if (node->kind() == c10::prim::Constant) return torch::jit::toIValue(&value);
    if (node->kind() != c10::prim::GetAttr) return std::nullopt;
    if (set_.contains(node->s(c10::attr::name))) return std::nullopt;
    const std::optional<c10::IValue> owner = ValueOf(*node->input());
    if (!owner || !owner->isObject()) return std::nullopt;
    return owner->toObject()->getAttr(node->s(c10::attr::name));
  }

  const torch::jit::Module& module_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::set<std::string> set_;  // names of attributes that the forward pass sets
  std::set<std::string> kinds_;
};

}  // namespace

void DrawFromTheRun(torch::jit::Module& module) {
  RegisterOps();
  auto& forward = torch::jit::toGraphFunction(module.get_method("forward").function());
  const std::shared_ptr<torch::jit::Graph> graph = forward.graph();
  torch::jit::Inline(*graph);
  ReplaceIn(*graph, *graph->block());
  const RandomOps random(module, graph);
  if (random.kinds().empty()) return;
  throw std::invalid_argument(absl::StrCat(
      "the scripted module draws random numbers (", absl::StrJoin(random.kinds(), ", "),
      "), which no run could repeat: script it without them; dropout of whole numbers "
      "(torch.nn.Dropout) and of attention's weights can be repeated"));
}

MasksFrom::MasksFrom(RandomStream* stream) { masks_from = stream; }
MasksFrom::~MasksFrom() { masks_from = nullptr; }

}  // namespace macaw::models
