#include "models/parse.h"

#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/status.h"
#include "models/sequence_layers.h"
#include "models/tensors.h"
#include "models/words.h"

namespace macaw::models {
namespace {

using Shape = std::vector<int64_t>;

// The layers between brackets: "[a, b [c, d]]" has two.
absl::StatusOr<std::vector<std::string>> InBrackets(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) {
    return Wrong("its layers stand in brackets: \"residual [layernorm, linear 8]\"");
  }
  constexpr int kDeepest = 16;  // reading them is recursive
  std::vector<std::string> layers(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0) break;
    if (depth == kDeepest) return Wrong(absl::StrCat("its brackets are over ", kDeepest, " deep"));
    if (c == ',' && depth == 0) {
      layers.emplace_back();
    } else {
      layers.back().push_back(c);
    }
  }
  if (depth != 0) return Wrong("its brackets do not match");
  for (std::string& layer : layers) absl::StripAsciiWhitespace(&layer);
  return layers;
}

// Its layers are read like a model's. Errors name the inner layer.
absl::StatusOr<Layer> ParseResidual(absl::string_view text, const Shape& input) {
  text.remove_prefix(text.find_first_not_of(" \t") + absl::string_view("residual").size());
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> lines, InBrackets(text));
  Residual block;
  Shape shape = input;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = absl::StrCat("its layer ", i + 1, " \"", lines[i], "\"");
    absl::StatusOr<Layer> layer = ParseLayer(lines[i], shape, /*first=*/false);
    if (!layer.ok()) return Annotate(layer.status(), where);
    absl::StatusOr<Shape> output = OutputShape(*layer, shape);
    if (!output.ok()) return Annotate(output.status(), where);
    block.layers.push_back(*std::move(layer));
    shape = *std::move(output);
  }
  if (shape == input) {
    Layer layer = std::move(block);
    CountTensors(layer);
    return layer;
  }
  return Wrong(absl::StrCat("its layers make ", ShapeText(shape), " of ", ShapeText(input),
                            ", and only equal shapes can be added"));
}

absl::Status NeedsImage(const Shape& input) {
  if (input.size() == 3) return absl::OkStatus();
  // Gray images are often stored without the axis of their channel.
  const std::string gray =
      input.size() == 2 ? absl::StrCat("; gray images have one channel, data.input_shape = [1, ",
                                       input[0], ", ", input[1], "], in Python x[:, None]")
                        : "";
  return Wrong(absl::StrCat("needs [channels, height, width], but ", ShapeText(input),
                            " arrives there: use it before \"flatten\", on images", gray));
}

absl::Status NeedsVector(const Shape& input) {
  if (input.size() == 1) return absl::OkStatus();
  return Wrong(absl::StrCat("needs a vector, but ", ShapeText(input),
                            " arrives there: put \"flatten\" before it"));
}

// Also accepts sequences, each position of which is a vector.
absl::Status NeedsVectors(const Shape& input) {
  return input.size() == 2 ? absl::OkStatus() : NeedsVector(input);
}

absl::Status DividesChannels(int64_t groups, int64_t channels) {
  if (channels % groups == 0) return absl::OkStatus();
  return Wrong(absl::StrCat(groups, " groups do not divide ", channels, " channels"));
}

absl::StatusOr<Layer> ParseConv(Words& words, const Shape& input) {
  Conv2d layer;
  MACAW_RETURN_IF_ERROR(NeedsImage(input));
  layer.in = input[0];
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of output channels"));
  MACAW_ASSIGN_OR_RETURN(layer.kernel, words.Number("kernel size"));
  MACAW_ASSIGN_OR_RETURN(layer.padding, words.Option("pad", 0, 0));
  MACAW_ASSIGN_OR_RETURN(layer.stride, words.Option("stride", 1, 1));
  layer.bias = !words.Flag("nobias");
  return layer;
}

absl::StatusOr<Layer> ParseLinear(Words& words, const Shape& input) {
  Linear layer;
  MACAW_RETURN_IF_ERROR(NeedsVectors(input));
  layer.in = input.back();
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of outputs"));
  layer.bias = !words.Flag("nobias");
  return layer;
}

template <typename Pool>
absl::StatusOr<Layer> ParsePool(Words& words, const Shape& input) {
  Pool layer;
  MACAW_RETURN_IF_ERROR(NeedsImage(input));
  MACAW_ASSIGN_OR_RETURN(layer.kernel, words.Number("window size"));
  MACAW_ASSIGN_OR_RETURN(layer.stride, words.Option("stride", layer.kernel, 1));
  return layer;
}

absl::StatusOr<Layer> ParseGroupNorm(Words& words, const Shape& input) {
  GroupNorm layer;
  MACAW_RETURN_IF_ERROR(NeedsImage(input));
  layer.channels = input[0];
  MACAW_ASSIGN_OR_RETURN(layer.groups, words.Number("number of groups"));
  MACAW_RETURN_IF_ERROR(DividesChannels(layer.groups, layer.channels));
  return layer;
}

absl::StatusOr<Layer> ParseBlock(Words& words, const Shape& input) {
  BasicBlock layer;
  MACAW_RETURN_IF_ERROR(NeedsImage(input));
  layer.in = input[0];
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of output channels"));
  MACAW_ASSIGN_OR_RETURN(layer.stride, words.Option("stride", 1, 1));
  layer.batch_norm = words.Flag("batchnorm");
  if (layer.batch_norm) return layer;
  MACAW_ASSIGN_OR_RETURN(layer.groups, words.Option("groups", 2, 1));
  MACAW_RETURN_IF_ERROR(DividesChannels(layer.groups, layer.out));
  return layer;
}

absl::StatusOr<Layer> ParseBatchNorm(const Shape& input) {
  if (input.size() == 1 || input.size() == 3) return BatchNorm{input[0]};
  return Wrong(absl::StrCat("needs images or vectors, but ", ShapeText(input), " arrives there"));
}

absl::StatusOr<Layer> ParseKind(Words& words, const Shape& input, bool first) {
  const std::string kind = words.Kind();
  if (kind == "conv") return ParseConv(words, input);
  if (kind == "linear") return ParseLinear(words, input);
  if (kind == "maxpool") return ParsePool<MaxPool2d>(words, input);
  if (kind == "avgpool") return ParsePool<AvgPool2d>(words, input);
  if (kind == "groupnorm") return ParseGroupNorm(words, input);
  if (kind == "batchnorm") return ParseBatchNorm(input);
  if (kind == "block") return ParseBlock(words, input);
  if (IsSequenceKind(kind)) return ParseSequenceKind(words, input, first);
  if (kind == "layernorm") {
    MACAW_RETURN_IF_ERROR(NeedsVectors(input));
    return LayerNorm{input.back()};
  }
  if (kind == "globalavgpool") {
    MACAW_RETURN_IF_ERROR(NeedsImage(input));
    return GlobalAvgPool{};
  }
  if (kind == "dropout") {
    MACAW_ASSIGN_OR_RETURN(const double p, words.Probability());
    return Dropout{p};
  }
  if (kind == "flatten") return Flatten{};
  if (kind == "relu") return Relu{};
  if (kind == "gelu") return Gelu{};
  if (kind == "tanh") return Tanh{};
  if (kind == "sigmoid") return Sigmoid{};
  std::vector<std::string> kinds;
  for (const LayerWords& words : AllLayerWords()) {
    std::string word = words.text.substr(0, words.text.find(' '));
    if (kinds.empty() || kinds.back() != word) kinds.push_back(std::move(word));
  }
  return Wrong(absl::StrCat("there is no layer \"", kind, "\"; there are ",
                            absl::StrJoin(kinds, ", "), " (macaw models: what they take)"));
}

// The number of windows of size `kernel` and step `stride` in `extent`, padded on both sides.
absl::StatusOr<int64_t> Windows(int64_t extent, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t padded = extent + 2 * padding;
  if (padded < kernel) {
    return Wrong(absl::StrCat("a window of ", kernel, " does not fit into ", extent, " padded by ",
                              padding, ": use a smaller one, or fewer layers that shrink"));
  }
  return (padded - kernel) / stride + 1;
}

absl::StatusOr<Shape> Slide(const Shape& input, int64_t channels, int64_t kernel, int64_t stride,
                            int64_t padding) {
  MACAW_ASSIGN_OR_RETURN(const int64_t height, Windows(input[1], kernel, stride, padding));
  MACAW_ASSIGN_OR_RETURN(const int64_t width, Windows(input[2], kernel, stride, padding));
  return Shape{channels, height, width};
}

struct ShapeOf {
  const Shape& input;

  absl::StatusOr<Shape> operator()(const Conv2d& l) const {
    return Slide(input, l.out, l.kernel, l.stride, l.padding);
  }
  absl::StatusOr<Shape> operator()(const BasicBlock& l) const {
    return Slide(input, l.out, 3, l.stride, 1);
  }
  absl::StatusOr<Shape> operator()(const MaxPool2d& l) const {
    return Slide(input, input[0], l.kernel, l.stride, 0);
  }
  absl::StatusOr<Shape> operator()(const AvgPool2d& l) const {
    return Slide(input, input[0], l.kernel, l.stride, 0);
  }
  absl::StatusOr<Shape> operator()(const GlobalAvgPool&) const { return Shape{input[0], 1, 1}; }
  absl::StatusOr<Shape> operator()(const Linear& l) const { return WithLast(l.out); }
  absl::StatusOr<Shape> operator()(const Lstm& l) const { return WithLast(l.out); }
  absl::StatusOr<Shape> operator()(const Gru& l) const { return WithLast(l.out); }
  absl::StatusOr<Shape> operator()(const LastPosition&) const { return Shape{input.back()}; }
  absl::StatusOr<Shape> operator()(const MeanOfPositions&) const { return Shape{input.back()}; }
  absl::StatusOr<Shape> operator()(const Embedding& l) const { return Shape{input[0], l.out}; }
  absl::StatusOr<Shape> operator()(const Flatten&) const {
    int64_t elements = 1;
    for (const int64_t extent : input) elements *= extent;
    return Shape{elements};
  }
  template <typename SameShape>
  absl::StatusOr<Shape> operator()(const SameShape&) const {
    return input;
  }

  Shape WithLast(int64_t extent) const {
    Shape shape = input;
    shape.back() = extent;
    return shape;
  }
};

}  // namespace

const std::vector<LayerWords>& AllLayerWords() {
  static const std::vector<LayerWords> kWords = {
      {"conv OUT KERNEL [pad P] [stride S] [nobias]", "a convolution, of images"},
      {"maxpool KERNEL [stride S]", "the largest of each window, of images"},
      {"avgpool KERNEL [stride S]", "the mean of each window, of images"},
      {"globalavgpool", "the mean of each channel, of images"},
      {"block OUT [stride S] [groups G]", "a residual block with group norm, of images"},
      {"block OUT [stride S] batchnorm", "… with batch norm"},
      {"groupnorm GROUPS", "group normalisation, of images"},
      {"batchnorm", "batch normalisation, of images or vectors"},
      {"flatten", "images and sequences to vectors"},
      {"linear OUT [nobias]", "of vectors, or of each position of a sequence"},
      {"embedding TOKENS OUT", "the first layer of a model of token sequences"},
      {"positions", "adds a learned vector to each position of a sequence"},
      {"lstm OUT [layers N]", "of sequences of vectors"},
      {"gru OUT [layers N]", "of sequences of vectors"},
      {"attention heads H [causal]", "self-attention, of sequences of vectors"},
      {"transformer heads H ff F [causal] [dropout P]",
       "a pre-norm block of attention and F hidden units"},
      {"last", "the last position of a sequence, as a vector"},
      {"mean", "the mean of a sequence's positions"},
      {"residual [LAYER, LAYER, ...]", "adds what the layers make of an input to it"},
      {"layernorm", "layer normalisation, of vectors or each position"},
      {"dropout P", "zeroes with probability P while training"},
      {"relu", ""},
      {"gelu", ""},
      {"tanh", ""},
      {"sigmoid", ""},
  };
  return kWords;
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<Layer> ParseLayer(absl::string_view text, const Shape& input, bool first) {
  Words words(text);
  if (words.Kind().starts_with("residual")) return ParseResidual(text, input);
  MACAW_ASSIGN_OR_RETURN(Layer layer, ParseKind(words, input, first));
  MACAW_RETURN_IF_ERROR(words.Done());
  return layer;
}

absl::StatusOr<Shape> OutputShape(const Layer& layer, const Shape& input) {
  return std::visit(ShapeOf{input}, layer);
}

}  // namespace macaw::models
