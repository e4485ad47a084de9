#include "models/spec.h"

#include <utility>

#include "core/status.h"
#include "models/named.h"
#include "models/parse.h"
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

absl::Status CheckOutput(const ModelSpec& spec, int64_t classes) {
  const std::vector<int64_t>& last = spec.shapes.back();
  if (last.size() == 1 && last[0] == classes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model \"", spec.name, "\" ends with shape ", ShapeText(last),
                   ", but the task needs [", classes, "]: end it with ",
                   last.size() == 1 ? "" : "\"flatten\", ", "\"linear ", classes, "\""));
}

}  // namespace

absl::StatusOr<ModelSpec> BuildSpec(const ModelConfig& config, DType dtype) {
  MACAW_RETURN_IF_ERROR(CheckInput(config));
  std::vector<std::string> lines = config.layers;
  if (config.name != "layers") {
    MACAW_ASSIGN_OR_RETURN(lines, LayersOf(config.name, config.input_shape, config.classes));
  }
  if (lines.empty() || lines.size() > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrCat("a model has 1 to ", kMaxLayers,
                                                   " layers, [model] layers has ", lines.size()));
  }

  ModelSpec spec{.name = config.name, .input_shape = config.input_shape};
  std::vector<LayoutEntry> entries;
  std::vector<int64_t> shape = config.input_shape;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = absl::StrCat("layer ", i + 1, " \"", lines[i], "\"");
    absl::StatusOr<Layer> layer = ParseLayer(lines[i], shape);
    if (!layer.ok()) return Annotate(layer.status(), where);
    absl::StatusOr<std::vector<int64_t>> output = OutputShape(*layer, shape);
    if (!output.ok()) return Annotate(output.status(), where);

    const size_t first = entries.size();
    for (TensorPlan& tensor : TensorsOf(*layer)) {
      entries.push_back(
          {.name = absl::StrCat(i, ".", tensor.name), .shape = std::move(tensor.shape)});
    }
    spec.tensors.emplace_back(first, entries.size() - first);
    spec.layers.push_back(*std::move(layer));
    spec.shapes.push_back(shape = *std::move(output));
  }
  MACAW_RETURN_IF_ERROR(CheckOutput(spec, config.classes));
  if (entries.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model \"", spec.name, "\" has no parameters: add a linear or conv layer"));
  }
  spec.outputs = config.classes;
  MACAW_ASSIGN_OR_RETURN(spec.layout, ParameterLayout::Make(std::move(entries), dtype));
  return spec;
}

}  // namespace macaw::models
