#include "models/script_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_tensors.h"

namespace macaw::models {
namespace {

using at::Tensor;

torch::jit::Module Load(const std::string& bytes) {
  std::istringstream stream(bytes);
  return torch::jit::load(stream, at::Device(at::kCPU));
}

// Finds the ops of a forward pass that draw random numbers.
class RandomOps {
 public:
  explicit RandomOps(const torch::jit::Module& module)
      : module_(module), graph_(module.get_method("forward").graph()->copy()) {
    torch::jit::Inline(*graph_);
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

  // Dropout with probability 0, also that of attention and between recurrent layers, returns its
  // input and draws nothing.
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

void RefuseRandom(const torch::jit::Module& module) {
  const RandomOps random(module);
  if (random.kinds().empty()) return;
  throw std::invalid_argument(absl::StrCat(
      "the scripted module draws random numbers (", absl::StrJoin(random.kinds(), ", "),
      "), which no run could repeat: script it without them (dropout = 0); [model] layers has "
      "\"dropout P\""));
}

}  // namespace

struct ScriptModule::Module {
  torch::jit::Module script;
  std::optional<ScriptTensors> tensors;
  std::vector<bool> buffer;      // parallel to the layout's entries
  std::vector<int64_t> outputs;  // of one example
  bool has_buffers = false;
  bool trains = false;
};

ScriptModule::ScriptModule(const ModelSpec& spec) : module_(std::make_unique<Module>()) {
  if (spec.script == nullptr) throw std::invalid_argument("the scripted module was not read");
  torch::jit::Module& script = module_->script;
  script = Load(*spec.script);
  RefuseRandom(script);
  ScriptTensors& named = module_->tensors.emplace(script);
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  for (size_t i = 0; i < std::max(entries.size(), named.tensors().size()); ++i) {
    const std::string wanted = i < entries.size() ? TensorLine(entries[i]) : "no tensor";
    const std::string found =
        i < named.tensors().size() ? TensorLine(named.tensors()[i].entry) : "none";
    if (wanted != found) {
      throw std::invalid_argument(
          absl::StrCat("the scripted module has ", found, " where the run has ", wanted));
    }
    module_->buffer.push_back(entries[i].group == Group::kBuffer);
    module_->has_buffers = module_->has_buffers || module_->buffer.back();
  }
  named.ConvertFrozen(spec.layout->dtype() == DType::kF32 ? at::kFloat : at::kDouble);
  if (spec.positions > 0) module_->outputs.push_back(spec.positions);
  module_->outputs.push_back(spec.outputs);
  script.train(false);
}

ScriptModule::~ScriptModule() = default;

Outputs ScriptModule::Forward(const Tensor& batch, std::span<const Tensor> parameters,
                              Statistics statistics) {
  // The optimising executor rewrites a graph after its first runs, so a result would depend on what
  // ran before. Without it the ops are those of eager mode.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  std::vector<Tensor> values(parameters.begin(), parameters.end());
  for (size_t i = 0; i < values.size(); ++i) {
    // With kBatch the buffers must not change, but a module in training mode updates them in place.
    if (module_->buffer[i] && statistics == Statistics::kBatch) values[i] = values[i].clone();
  }
  module_->tensors->Bind(values);
  // With one row, a channel may have a single value, and batch norm refuses to compute its
  // variance.
  const bool trains =
      statistics != Statistics::kRunning && (batch.size(0) > 1 || !module_->has_buffers);
  if (trains != module_->trains) module_->script.train(trains);
  module_->trains = trains;

  // PyTorch's modules take tokens as int64.
  const bool tokens = batch.scalar_type() == at::kInt;
  const c10::IValue result = module_->script.forward({tokens ? batch.to(at::kLong) : batch});
  Outputs outputs;
  if (result.isTuple() && result.toTupleRef().elements().size() == 2) {
    outputs.logits = result.toTupleRef().elements()[0].toTensor();
    outputs.representation = result.toTupleRef().elements()[1].toTensor();
  } else {
    outputs.logits = result.toTensor();
  }
  std::vector<int64_t> needed = {batch.size(0)};
  needed.insert(needed.end(), module_->outputs.begin(), module_->outputs.end());
  if (outputs.logits.sizes() != at::IntArrayRef(needed)) {
    std::ostringstream shape;
    shape << outputs.logits.sizes();
    throw std::invalid_argument(
        absl::StrCat("the scripted module returns shape ", shape.str(), " for a batch of ",
                     batch.size(0), ", the task needs [", absl::StrJoin(needed, ", "), "]"));
  }
  return outputs;
}

absl::StatusOr<ScriptContent> ReadScriptContent(const std::string& bytes) {
  UseOneThread();
  try {
    const torch::jit::Module script = Load(bytes);
    RefuseRandom(script);
    const ScriptTensors named(script);
    ScriptContent content;
    for (const ScriptTensor& tensor : named.tensors()) {
      content.tensors.push_back(TensorLine(tensor.entry));
      content.values.push_back(tensor.value.contiguous());
    }
    if (named.tensors().empty() || named.tensors().front().entry.group == Group::kBuffer) {
      return absl::InvalidArgumentError(
          "the scripted module has no parameter with requires_grad = True, so there is nothing to "
          "train");
    }
    return content;
  } catch (const c10::Error& error) {
    // Only the first sentence of LibTorch's message: the rest guesses that the file is damaged.
    const std::string words = error.what_without_backtrace();
    return absl::InvalidArgumentError(absl::StrCat(
        "LibTorch does not read it as a scripted module: ", words.substr(0, words.find(". ")),
        "; write one with torch.jit.script(net).save(path): a state_dict holds no module"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace macaw::models
