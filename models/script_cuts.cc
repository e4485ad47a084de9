#include "models/script_cuts.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/segments.h"

namespace macaw::models {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

constexpr size_t kMostPlaces = 150;  // that the planner looks at

[[noreturn]] void CannotCut(absl::string_view why) {
  throw std::invalid_argument(
      absl::StrCat("local.checkpoint: no part of the scripted module can be computed again: ", why,
                   "; take it out (local.micro_batch takes less memory, too), or train the module "
                   "in Python (train=), where it has torch.utils.checkpoint"));
}

bool IsTensor(const Value* value) { return value->type()->kind() == c10::TypeKind::TensorType; }

// Whether a value of this type holds no tensor and no object.
bool IsPlain(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType:
      return std::ranges::all_of(type.containedTypes(),
                                 [](const c10::TypePtr& t) { return IsPlain(*t); });
    default:
      return false;
  }
}

// Operations that give a view, and so keep nothing.
bool IsView(const Node& node) {
  static const std::set<std::string_view> views = {
      "aten::view",    "aten::reshape", "aten::permute",    "aten::transpose", "aten::t",
      "aten::expand",  "aten::select",  "aten::slice",      "aten::unsqueeze", "aten::squeeze",
      "aten::flatten", "aten::detach",  "aten::contiguous", "aten::to",        "aten::size"};
  return views.contains(node.kind().toQualString());
}

// How many tensors it may keep.
double KeptBy(const Node& node) {
  double kept = 0;
  for (const Block* block : node.blocks())
    for (const Node* inner : block->nodes()) kept += KeptBy(*inner);
  if (!node.blocks().empty() || IsView(node) || node.kind().is_prim()) return kept;
  for (const Value* output : node.outputs()) kept += IsTensor(output) ? 1 : 0;
  return kept;
}

class Graph {
 public:
  Graph(const torch::jit::Graph& graph, std::span<Node* const> nodes)
      : graph_(graph),
        batch_(graph.inputs().at(1)),
        nodes_(nodes),
        passing_(nodes.size()),
        closed_(nodes.size()) {
    for (size_t i = 0; i < nodes.size(); ++i) place_[nodes[i]] = i;
    place_[graph.return_node()] = nodes.size();
    Spans(batch_, 0, /*counted=*/false);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const Value* output : nodes[i]->outputs()) Spans(output, i, /*counted=*/true);
      Writes(*nodes[i], i);
    }
  }

  // The last place at which a value is used.
  size_t LastUse(const Value* value) const {
    size_t last = 0;
    for (const torch::jit::Use& use : value->uses()) last = std::max(last, PlaceOf(use.user));
    return last;
  }
  // Behind node i.
  bool MayCut(size_t i) const { return !closed_[i]; }
  double Passing(size_t i) const { return passing_[i]; }

 private:
  size_t PlaceOf(const Node* node) const {
    while (node->owningBlock() != graph_.block()) node = node->owningBlock()->owningNode();
    const auto found = place_.find(node);
    return found == place_.end() ? 0 : found->second;
  }

  // A value is there from behind node `from` up to its last use.
  void Spans(const Value* value, size_t from, bool counted) {
    const size_t last = LastUse(value);
    for (size_t i = from; i < last && i < nodes_.size(); ++i) {
      if (IsTensor(value)) {
        passing_[i] += counted ? 1 : 0;
      } else if (!IsPlain(*value->type())) {
        closed_[i] = true;
      }
    }
  }

  // Closes the places between a tensor's making and an operation that writes to it, at place i.
  void Writes(const Node& node, size_t i) {
    for (const Block* block : node.blocks())
      for (const Node* inner : block->nodes()) Writes(*inner, i);
    for (const Value* written : WrittenBy(node)) {
      const Value* const made = IsTensor(written) ? MadeBy(written) : written;
      if (made != nullptr && IsCounter(made)) continue;
      if (made != nullptr && IsGiven(made->node())) {
        CannotCut(
            absl::StrCat(node.kind().toQualString(), " writes to a tensor that it was given"));
      }
      const size_t from = made == nullptr ? 0 : PlaceOf(made->node());
      for (size_t k = from; k < i; ++k) closed_[k] = true;
    }
  }

  static std::vector<const Value*> WrittenBy(const Node& node) {
    std::vector<const Value*> written;
    const std::string_view kind = node.kind().toQualString();
    if (kind.starts_with("macaw::")) {  // theirs say it in a name alone
      if (kind.ends_with("_")) written.push_back(node.inputs()[0]);
      return written;
    }
    if (node.maybeSchema() == nullptr) return written;
    const auto& arguments = node.schema().arguments();
    for (size_t k = 0; k < arguments.size() && k < node.inputs().size(); ++k) {
      const c10::AliasInfo* const alias = arguments[k].alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(node.inputs()[k]);
    }
    return written;
  }

  // The value whose memory this one is a view of; null: that of some value from before.
  const Value* MadeBy(const Value* value) const {
    for (;;) {
      const Node* const node = value->node();
      if (value == batch_) return value;
      if (!node->blocks().empty() || node->kind() == c10::prim::Param) return nullptr;
      if (node->inputs().empty() || node->kind() == c10::prim::GetAttr) return value;
      const std::string_view kind = node->kind().toQualString();
      const Value* from = nullptr;
      if (kind.starts_with("macaw::")) {
        from = node->inputs()[0];  // what drops nothing gives back what it got
      } else if (node->kind().is_prim()) {
        if (node->inputs().size() > 1) return nullptr;  // a list, of which this is a part
        from = node->inputs()[0];
      } else if (node->maybeSchema() != nullptr) {
        from = SharedBy(*node);
      }
      if (from == nullptr) return value;
      value = from;
    }
  }

  // The input whose memory an operation's outputs share; null: they have their own.
  static const Value* SharedBy(const Node& node) {
    const auto& arguments = node.schema().arguments();
    const auto& returns = node.schema().returns();
    if (std::ranges::none_of(returns,
                             [](const c10::Argument& r) { return r.alias_info() != nullptr; })) {
      return nullptr;
    }
    for (size_t k = 0; k < arguments.size() && k < node.inputs().size(); ++k)
      if (arguments[k].alias_info() != nullptr) return node.inputs()[k];
    return nullptr;
  }

  // Whether a node gives a constant or an attribute of the module, or the batch.
  bool IsGiven(const Node* node) const {
    return node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::Constant ||
           node == graph_.param_node();
  }

  // A count of batches, such as batch norm's: an integer of which no output depends.
  static bool IsCounter(const Value* value) {
    return value->node()->kind() == c10::prim::GetAttr &&
           value->node()->s(c10::attr::name) == "num_batches_tracked";
  }

  const torch::jit::Graph& graph_;
  const Value* const batch_;
  const std::span<Node* const> nodes_;
  std::unordered_map<const Node*, size_t> place_;
  std::vector<double> passing_;  // tensors that pass behind each node
  std::vector<bool> closed_;     // where no cut may be
};

// Places where no fewer tensors pass at a neighbour, one for each stretch that keeps anything.
std::vector<size_t> PlacesOf(const Graph& graph, std::span<Node* const> nodes) {
  std::vector<size_t> places;
  double kept = 0;
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    kept += KeptBy(*nodes[i]);
    const double here = graph.Passing(i);
    if (!graph.MayCut(i) || here == 0 || (i > 0 && graph.Passing(i - 1) < here) ||
        graph.Passing(i + 1) < here) {
      continue;
    }
    if (kept == 0) {
      if (!places.empty() && here <= graph.Passing(places.back())) places.back() = i;
      continue;
    }
    places.push_back(i);
    kept = 0;
  }
  if (places.size() <= kMostPlaces) return places;
  std::vector<size_t> some;
  for (size_t k = 0; k < kMostPlaces; ++k) some.push_back(places[k * places.size() / kMostPlaces]);
  return some;
}

}  // namespace

ScriptCuts CutsOf(const torch::jit::Graph& whole, std::span<Node* const> nodes) {
  const Graph graph(whole, nodes);
  std::vector<size_t> ends;  // of the steps
  for (const size_t place : PlacesOf(graph, nodes)) ends.push_back(place + 1);
  ends.push_back(nodes.size());
  Chain chain{.inputs = {}, .kept = {}, .last = ends.size() - 1};
  size_t node = 0;
  for (const size_t end : ends) {
    chain.inputs.push_back(node == 0 ? 0 : graph.Passing(node - 1));
    double kept = 0;
    for (; node < end; ++node) kept += KeptBy(*nodes[node]);
    chain.kept.push_back(kept);
  }
  const Segments segments = SegmentsOf(chain);
  if (!segments.save()) {
    CannotCut("its graph has too few places at which tensors and numbers alone pass on");
  }
  ScriptCuts cuts;
  size_t begin = 0;
  for (const size_t step : segments.ends) {
    const size_t end = ends[step - 1];
    std::vector<const Value*>& outputs = cuts.outputs.emplace_back();
    for (; begin < end; ++begin)
      for (const Value* output : nodes[begin]->outputs())
        if (graph.LastUse(output) >= end) outputs.push_back(output);
    cuts.ends.push_back(end);
  }
  return cuts;
}

}  // namespace macaw::models
