#include "models/spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/glob.h"
#include "core/status.h"
#include "models/adapters.h"
#include "models/lay_out.h"
#include "models/named.h"
#include "models/parse.h"
#include "models/script.h"
#include "models/tensors.h"

namespace macaw::models {
namespace {

constexpr size_t kMaxLayers = 10000;

absl::Status CheckInput(const ModelConfig& config) {
  if (config.classes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model has at least one output, not ", config.classes));
  }
  bool positive = !config.input_shape.empty();
  for (const int64_t extent : config.input_shape) positive = positive && extent > 0;
  if (positive) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the shape of an example is impossible: ", ShapeText(config.input_shape)));
}

absl::Status CheckOutput(const ModelSpec& spec, const ModelConfig& config) {
  const int64_t classes = config.classes;
  const std::vector<int64_t>& last = spec.shapes.back();
  if (last.size() == 1 && last[0] == classes) return absl::OkStatus();
  if (spec.takes_tokens() && last.size() == 2) {
    if (last[1] == classes) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "model \"", spec.name, "\" ends with shape ", ShapeText(last), ", but the task needs ",
        classes, " outputs at each position: end it with \"linear ", classes,
        "\" (a classifier of whole texts has \"last\" or \"mean\" before it)"));
  }
  const bool vector = last.size() == 1;
  std::string otherwise;
  if (vector && classes == 2 && last[0] == 1)
    otherwise = "; one output for two classes is run.task = \"binary\"";
  if (vector && classes >= 2 && last[0] > classes) {
    otherwise =
        absl::StrCat("; if there are classes that no row has, say data.classes = ", last[0]);
  }
  const bool one_layer =
      spec.layers.size() == 1 ||
      (spec.layers.size() == 2 && std::holds_alternative<Flatten>(spec.layers[0]));
  if (vector && one_layer && classes > 2 && last[0] > 1 && last[0] < classes) {
    absl::StrAppend(&otherwise,
                    "; centres of kmeans are no classes: give the rows labels that are "
                    "all 0, and data.classes = ",
                    last[0]);
  }
  int64_t inputs = 1;
  for (const int64_t extent : config.input_shape) inputs *= extent;
  if (vector && last[0] == inputs && !spec.takes_sequences()) {
    absl::StrAppend(&otherwise,
                    "; an autoencoder, whose outputs are its inputs, is run.task = "
                    "\"reconstruction\"");
  }
  return absl::InvalidArgumentError(absl::StrCat("model \"", spec.name, "\" ends with shape ",
                                                 ShapeText(last), ", but the task needs [", classes,
                                                 "]: end it with ", vector ? "" : "\"flatten\", ",
                                                 "\"linear ", classes, "\"", otherwise));
}

// A model with an output at each position predicts the next token, which it must not see.
absl::Status CheckCausal(const ModelSpec& spec, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!LooksAhead(spec.layers[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", i + 1, " \"", lines[i],
        "\": a position sees later ones there, but the model has an output at each position and so "
        "predicts the next token: add \"causal\", or make one vector of the text with \"last\" or "
        "\"mean\" to classify it"));
  }
  return absl::OkStatus();
}

absl::Status CheckBuffers(const ModelConfig& config) {
  if (config.buffers == "mean" || config.buffers == "server") return absl::OkStatus();
  if (config.buffers == "local") {
    return absl::InvalidArgumentError(
        "model.buffers = \"local\": statistics that stay with a client are client state, which an "
        "algorithm keeps: use algorithm.name = \"fedbn\" with [algorithm.fedbn] local = "
        "\"*running_mean *running_var\" (its default keeps the norms' weights at home, too)");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model.buffers is \"mean\", \"local\" or \"server\", got \"", config.buffers, "\""));
}

std::string NamesOf(const ParameterLayout& layout) {
  return absl::StrJoin(layout.entries(), ", ", [](std::string* out, const LayoutEntry& entry) {
    absl::StrAppend(out, entry.name);
  });
}

// Each glob names a tensor. A "!" before it takes tensors out.
absl::Status CheckGlobs(absl::string_view key, const std::vector<std::string>& globs,
                        const ParameterLayout& layout) {
  for (const std::string& text : globs) {
    absl::string_view glob = text;
    absl::ConsumePrefix(&glob, "!");
    const auto matches = [&](const LayoutEntry& entry) { return MatchesGlob(glob, entry.name); };
    if (std::ranges::any_of(layout.entries(), matches)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": \"", glob, "\" is no tensor of the model; it has ", NamesOf(layout)));
  }
  return absl::OkStatus();
}

// The tensors that [model] frozen, trained and adapters leave out of training.
absl::StatusOr<std::vector<bool>> FrozenOf(const ModelConfig& config,
                                           const ParameterLayout& layout) {
  std::vector<bool> frozen;
  const std::vector<std::string> globs = config.FrozenGlobs();
  if (globs.empty()) return frozen;
  MACAW_RETURN_IF_ERROR(CheckGlobs("model.frozen", config.frozen, layout));
  MACAW_RETURN_IF_ERROR(CheckGlobs("model.trained", config.trained, layout));
  bool trains = false;
  for (const LayoutEntry& entry : layout.entries()) {
    frozen.push_back(MatchesAny(globs, entry.name));
    trains = trains || (entry.group == Group::kParameter && !frozen.back());
  }
  if (trains) return frozen;
  const bool by_frozen = !config.frozen.empty();
  return absl::InvalidArgumentError(
      absl::StrCat(by_frozen ? "model.frozen names every parameter of the model"
                             : "model.trained names no parameter of the model",
                   config.adapters.empty() || !by_frozen ? "" : " that is trained",
                   ", so there is nothing to train; it has ", NamesOf(layout)));
}

}  // namespace

bool DrawsMasks(const Layer& layer) {
  if (const auto* block = std::get_if<TransformerBlock>(&layer)) return block->dropout > 0;
  if (const auto* residual = std::get_if<Residual>(&layer))
    return std::ranges::any_of(residual->layers, DrawsMasks);
  const auto* dropout = std::get_if<Dropout>(&layer);
  return dropout != nullptr && dropout->p > 0;
}

bool LooksAhead(const Layer& layer) {
  if (const auto* attention = std::get_if<Attention>(&layer)) return !attention->causal;
  if (const auto* block = std::get_if<TransformerBlock>(&layer)) return !block->causal;
  const auto* residual = std::get_if<Residual>(&layer);
  return residual != nullptr && std::ranges::any_of(residual->layers, LooksAhead);
}

bool ModelSpec::has_buffers() const { return layout->parameter_size() < layout->size(); }

namespace {

absl::StatusOr<ModelSpec> BuildLayers(const ModelConfig& config, DType dtype) {
  std::vector<std::string> lines = config.layers;
  if (config.name != "layers") {
    MACAW_ASSIGN_OR_RETURN(lines, LayersOf(config));
  } else if (!config.bias) {
    return absl::InvalidArgumentError(
        "bias = false is for the model \"logistic\"; in [model] layers, write \"nobias\"");
  }
  if (lines.empty() || lines.size() > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrCat("a model has 1 to ", kMaxLayers,
                                                   " layers, [model] layers has ", lines.size()));
  }

  ModelSpec spec{.name = config.name, .input_shape = config.input_shape};
  std::vector<int64_t> shape = config.input_shape;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = absl::StrCat("layer ", i + 1, " \"", lines[i], "\"");
    absl::StatusOr<Layer> layer = ParseLayer(lines[i], shape, i == 0);
    if (!layer.ok()) return Annotate(layer.status(), where);
    absl::StatusOr<std::vector<int64_t>> output = OutputShape(*layer, shape);
    if (!output.ok()) return Annotate(output.status(), where);
    spec.layers.push_back(*std::move(layer));
    spec.shapes.push_back(shape = *std::move(output));
  }
  MACAW_RETURN_IF_ERROR(CheckOutput(spec, config));
  if (std::ranges::all_of(spec.layers, [](const Layer& l) { return TensorsOf(l).empty(); })) {
    return absl::InvalidArgumentError(
        absl::StrCat("model \"", spec.name, "\" has no parameters: add a linear or conv layer"));
  }
  spec.outputs = config.classes;
  if (spec.takes_tokens() && shape.size() == 2) {
    MACAW_RETURN_IF_ERROR(CheckCausal(spec, lines));
    spec.positions = shape[0];
  }
  MACAW_RETURN_IF_ERROR(AddAdapters(config.adapters, spec.layers));
  MACAW_RETURN_IF_ERROR(LayOut(dtype, spec));
  if (spec.has_buffers()) {
    MACAW_RETURN_IF_ERROR(CheckBuffers(config));
    spec.move_buffers = config.buffers != "server";
  }
  return spec;
}

}  // namespace

absl::Status LayOut(DType dtype, ModelSpec& spec) {
  spec.tensors.clear();
  spec.buffers.clear();
  spec.adapters.clear();
  std::vector<LayoutEntry> entries;
  size_t parameters = 0, buffers = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.tensors.emplace_back(parameters, 0);
    spec.buffers.emplace_back(buffers, 0);
    for (TensorPlan& tensor : TensorsOf(spec.layers[i])) {
      const bool trained = tensor.group == Group::kParameter;
      ++(trained ? spec.tensors : spec.buffers).back().second;
      ++(trained ? parameters : buffers);
      entries.push_back({.name = absl::StrCat(i, ".", tensor.name),
                         .shape = std::move(tensor.shape),
                         .group = tensor.group});
    }
  }
  // In a layout all buffers come after all parameters.
  for (std::pair<size_t, size_t>& own : spec.buffers) own.first += parameters;
  MACAW_ASSIGN_OR_RETURN(spec.layout, ParameterLayout::Make(std::move(entries), dtype));
  const auto place = [&](const std::string& name) {
    return static_cast<size_t>(spec.layout->Find(name) - spec.layout->entries().data());
  };
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    for (const LinearMap& map : LinearMapsOf(spec.layers[i])) {
      if (map.adapter->rank == 0) continue;
      const std::string weight = absl::StrCat(i, ".", map.weight);
      spec.adapters.push_back({.weight = place(weight),
                               .a = place(AdapterTensor(weight, 'A')),
                               .b = place(AdapterTensor(weight, 'B')),
                               .adapter = *map.adapter});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> BuildSpec(const ModelConfig& config, DType dtype) {
  MACAW_RETURN_IF_ERROR(CheckInput(config));
  const bool tensors_alone = config.name == kScriptName || config.name == kProgramsName;
  if (tensors_alone && !config.adapters.empty()) {
    return absl::InvalidArgumentError(
        "model.adapters: adapters are for lists of layers and named models; a module of PyTorch "
        "brings its own, such as those of peft");
  }
  MACAW_ASSIGN_OR_RETURN(
      ModelSpec spec, tensors_alone ? BuildScriptSpec(config, dtype) : BuildLayers(config, dtype));
  MACAW_ASSIGN_OR_RETURN(spec.frozen, FrozenOf(config, *spec.layout));
  return spec;
}

}  // namespace macaw::models
