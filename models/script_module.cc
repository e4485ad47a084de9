#include "models/script_module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "models/one_thread.h"
#include "models/script.h"
#include "models/script_random.h"
#include "models/script_segments.h"
#include "models/script_tensors.h"

namespace macaw::models {
namespace {

using at::Tensor;

torch::jit::Module Load(const std::string& bytes, at::Device device = at::kCPU) {
  std::istringstream stream(bytes);
  return torch::jit::load(stream, device);
}

// What the interpreter says of an operation that failed, in one line: its words have the places
// first, each a line of code above one that ends with an arrow, and the reason last.
std::string FailureOf(absl::string_view words) {
  constexpr absl::string_view kReason = "\nRuntimeError: ", kArrow = "<--- HERE";
  constexpr size_t kMostCode = 100;  // bytes
  words = absl::StripTrailingAsciiWhitespace(words);
  const size_t reason = words.rfind(kReason);
  if (reason == absl::string_view::npos) return OneLine(words.substr(words.rfind('\n') + 1));
  const std::string what = OneLine(words.substr(reason + kReason.size()));
  const size_t arrow = words.rfind(kArrow, reason);
  if (arrow == absl::string_view::npos) return what;
  const std::vector<absl::string_view> lines = absl::StrSplit(words.substr(0, arrow), '\n');
  if (lines.size() < 2) return what;
  const absl::string_view code = absl::StripAsciiWhitespace(lines[lines.size() - 2]);
  return absl::StrCat(what, ", in \"", OneLine(HeadOf(code, kMostCode)), "\"");
}

// Calls f, a pass of the interpreter. It turns all that an operation throws into one exception,
// whose words alone say what it was: here a lack of memory is one again, and of what remains the
// module is to blame, but for a GPU's own errors.
template <typename F>
c10::IValue Interpreted(at::IntArrayRef batch, F&& f) {
  try {
    return f();
  } catch (const std::runtime_error& error) {
    const absl::string_view words = error.what();
    if (!absl::StrContains(words, "TorchScript interpreter") ||
        absl::StrContains(words, "CUDA error"))
      throw;
    const std::string failure = FailureOf(words);
    TORCH_CHECK_WITH(OutOfMemoryError,
                     !absl::StrContains(words, "can't allocate memory") &&
                         !absl::StrContains(words, "out of memory"),
                     failure);
    throw std::invalid_argument(absl::StrCat(
        "the scripted module cannot compute a batch of shape [", absl::StrJoin(batch, ", "),
        "]: ", failure, "; forward gets any number of rows of shape [",
        absl::StrJoin(batch.slice(1), ", "), "], which is the data's (model.input_shape)"));
  }
}

bool HasBatchNorm(const torch::jit::Block& block) {
  for (const torch::jit::Node* node : block.nodes()) {
    const absl::string_view kind = node->kind().toQualString();
    if (absl::EndsWith(kind, "batch_norm") || kind == "aten::_batch_norm_impl_index" ||
        kind == "aten::instance_norm")
      return true;
    for (const torch::jit::Block* inner : node->blocks())
      if (HasBatchNorm(*inner)) return true;
  }
  return false;
}

// Refuses norms that use the statistics of their batch whatever the module's mode, as a trace that
// was made in training mode does: in evaluation, rows would depend on those beside them. What
// stands behind a condition may be of one mode.
void RefuseNormsThatAlwaysTrain(const torch::jit::Block& block) {
  constexpr size_t kMean = 3, kTraining = 5;  // among the inputs of all of these
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::If) continue;
    for (const torch::jit::Block* inner : node->blocks()) RefuseNormsThatAlwaysTrain(*inner);
    const absl::string_view kind = node->kind().toQualString();
    const bool of_a_batch = kind == "aten::batch_norm" || kind == "aten::native_batch_norm" ||
                            kind == "aten::_batch_norm_impl_index";
    if (!of_a_batch && kind != "aten::instance_norm") continue;
    const std::optional<c10::IValue> training = torch::jit::toIValue(node->input(kTraining));
    if (!training.has_value() || !training->isBool() || !training->toBool()) continue;
    // Without running statistics, a norm of an instance is the same in both modes.
    if (!of_a_batch && node->input(kMean)->type()->kind() == c10::TypeKind::NoneType) continue;
    throw std::invalid_argument(absl::StrCat(
        "the scripted module has ", kind,
        " with training = True in both modes, so that evaluation would use the statistics of the ",
        of_a_batch ? "batch" : "row",
        " and not the running ones: torch.jit.trace(net) keeps the mode in which it was made; "
        "write torch.jit.script(net), which has both, or give the module itself from Python"));
  }
}

}  // namespace

struct ScriptModule::Module {
  torch::jit::Module script;
  std::optional<ScriptTensors> tensors;
  std::vector<bool> buffer;      // parallel to the layout's entries
  std::vector<int64_t> outputs;  // of one example
  bool has_statistics = false;   // running ones, of a batch norm

  std::vector<Tensor> Buffers(std::span<const Tensor> values) const {
    std::vector<Tensor> buffers;
    for (size_t i = 0; i < values.size(); ++i)
      if (buffer[i]) buffers.push_back(values[i]);
    return buffers;
  }

  bool trains = false;
  // With checkpoints, of the graph in each mode; null: that mode's is not cut.
  std::unique_ptr<ScriptSegments> evaluation, training;
};

ScriptModule::ScriptModule(const ModelSpec& spec, at::Device device, bool checkpoint)
    : module_(std::make_unique<Module>()) {
  if (spec.script == nullptr) throw std::invalid_argument("the scripted module was not read");
  torch::jit::Module& script = module_->script;
  script = Load(*spec.script, device);
  DrawFromTheRun(script);
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
    module_->has_statistics = module_->has_statistics || module_->buffer.back();
  }
  module_->has_statistics =
      module_->has_statistics && HasBatchNorm(*script.get_method("forward").graph()->block());
  named.ConvertFrozen(spec.layout->dtype() == DType::kF32 ? at::kFloat : at::kDouble);
  if (spec.positions > 0) module_->outputs.push_back(spec.positions);
  module_->outputs.push_back(spec.outputs);
  script.train(false);
  if (!checkpoint) return;
  module_->training = std::make_unique<ScriptSegments>(script, /*training=*/true);
  try {  // for passes of one row, and with statistics that stay as they are
    module_->evaluation = std::make_unique<ScriptSegments>(script, /*training=*/false);
  } catch (const std::invalid_argument&) {
  }
}

ScriptModule::~ScriptModule() = default;

Outputs ScriptModule::Forward(const Tensor& batch, std::span<const Tensor> parameters,
                              RandomStream* dropout, Statistics statistics) {
  const MasksFrom masks(dropout);
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
  // variance. Whatever else the module does in training, it then does not do.
  const bool trains =
      statistics != Statistics::kRunning && (batch.size(0) > 1 || !module_->has_statistics);
  if (trains != module_->trains) module_->script.train(trains);
  module_->trains = trains;

  // PyTorch's modules take tokens as int64.
  const bool tokens = batch.scalar_type() == at::kInt;
  const Tensor input = tokens ? batch.to(at::kLong) : batch;
  const ScriptSegments* const segments =
      at::GradMode::is_enabled() ? (trains ? module_->training : module_->evaluation).get()
                                 : nullptr;
  const c10::IValue result = Interpreted(input.sizes(), [&] {
    return segments == nullptr ? module_->script.forward({input})
                               : segments->Forward(input, module_->Buffers(values), dropout);
  });
  Outputs outputs;
  if (result.isTuple() && result.toTupleRef().elements().size() == 2) {
    outputs.logits = result.toTupleRef().elements()[0].toTensor();
    outputs.representation = result.toTupleRef().elements()[1].toTensor();
  } else {
    outputs.logits = result.toTensor();
  }
  // Of one output a module may return a number a row, as squeeze() makes it.
  const Tensor& logits = outputs.logits;
  const bool one_output = module_->outputs.size() == 1 && module_->outputs.front() == 1;
  if (one_output && logits.dim() < 2 && logits.numel() == batch.size(0))
    outputs.logits = logits.reshape({batch.size(0), 1});
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
    torch::jit::Module script = Load(bytes);
    DrawFromTheRun(script);
    RefuseNormsThatAlwaysTrain(*script.get_method("forward").graph()->block());
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
  } catch (const torch::jit::ErrorReport& error) {
    // Of code that does not compile: what is wrong in the first line, and then the places.
    const std::vector<std::string> lines =
        absl::StrSplit(error.what(), '\n', absl::SkipWhitespace());
    return absl::InvalidArgumentError(
        absl::StrCat("LibTorch ", TORCH_VERSION, " does not read it as a scripted module: ",
                     lines.empty() ? "it says no more" : lines.front()));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

}  // namespace macaw::models
