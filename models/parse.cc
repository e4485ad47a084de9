#include "models/parse.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"

namespace macaw::models {
namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kMaxExtent = int64_t{1} << 24;  // larger sizes are taken for a mistake

absl::Status Wrong(absl::string_view message) { return absl::InvalidArgumentError(message); }

// Reads the words of a layer from left to right. Words that are left over at the end are an error.
class Words {
 public:
  explicit Words(absl::string_view text)
      : words_(absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {}

  std::string Kind() const { return words_.empty() ? "" : absl::AsciiStrToLower(words_[0]); }

  // The next positional number, at least 1.
  absl::StatusOr<int64_t> Number(absl::string_view meaning) {
    if (next_ >= words_.size()) return Wrong(absl::StrCat("the ", meaning, " is missing"));
    return Parse(words_[next_++], meaning, 1);
  }

  absl::StatusOr<double> Probability() {
    double p = 0;
    if (next_ >= words_.size()) return Wrong("the probability is missing");
    const std::string word = words_[next_++];
    if (!absl::SimpleAtod(word, &p) || !(p >= 0 && p < 1)) {
      return Wrong(absl::StrCat("the probability is a number in [0, 1), got \"", word, "\""));
    }
    return p;
  }

  // Reads an option such as "pad 2", which may stand anywhere after the positional numbers. Returns
  // `otherwise` when it is absent.
  absl::StatusOr<int64_t> Option(absl::string_view key, int64_t otherwise, int64_t least) {
    for (size_t i = next_; i < words_.size(); ++i) {
      if (words_[i] != key) continue;
      if (i + 1 >= words_.size()) return Wrong(absl::StrCat("\"", key, "\" needs a number"));
      const std::string value = words_[i + 1];
      words_.erase(words_.begin() + i, words_.begin() + i + 2);
      return Parse(value, key, least);
    }
    return otherwise;
  }

  bool Flag(absl::string_view key) {
    for (size_t i = next_; i < words_.size(); ++i) {
      if (words_[i] != key) continue;
      words_.erase(words_.begin() + i);
      return true;
    }
    return false;
  }

  absl::Status Done() const {
    if (next_ >= words_.size()) return absl::OkStatus();
    return Wrong(absl::StrCat("does not take \"", words_[next_], "\""));
  }

 private:
  static absl::StatusOr<int64_t> Parse(const std::string& word, absl::string_view meaning,
                                       int64_t least) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(word, &value) || value < least || value > kMaxExtent) {
      return Wrong(absl::StrCat("the ", meaning, " is a whole number of at least ", least,
                                ", got \"", word, "\""));
    }
    return value;
  }

  std::vector<std::string> words_;
  size_t next_ = 1;
};

absl::Status NeedsImage(const Shape& input) {
  if (input.size() == 3) return absl::OkStatus();
  return Wrong(absl::StrCat("needs [channels, height, width], but ", ShapeText(input),
                            " arrives there: use it before \"flatten\", on images"));
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

absl::StatusOr<Layer> ParseEmbedding(Words& words, const Shape& input, bool first) {
  Embedding layer;
  if (!first || input.size() != 1) {
    return Wrong(absl::StrCat("takes tokens, so it is the first layer of a model of sequences; ",
                              ShapeText(input), " arrives there"));
  }
  MACAW_ASSIGN_OR_RETURN(layer.tokens, words.Number("number of tokens"));
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of outputs"));
  return layer;
}

absl::StatusOr<Layer> ParseLstm(Words& words, const Shape& input) {
  Lstm layer;
  if (input.size() != 2) {
    return Wrong(absl::StrCat("needs a sequence of vectors, but ", ShapeText(input),
                              " arrives there: put \"embedding TOKENS OUT\" before it"));
  }
  layer.in = input[1];
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of outputs"));
  MACAW_ASSIGN_OR_RETURN(layer.layers, words.Option("layers", 1, 1));
  return layer;
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
  if (kind == "embedding") return ParseEmbedding(words, input, first);
  if (kind == "lstm") return ParseLstm(words, input);
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
      {"flatten", "images to vectors"},
      {"linear OUT [nobias]", "of vectors, or of each position of a sequence"},
      {"embedding TOKENS OUT", "the first layer of a model of token sequences"},
      {"lstm OUT [layers N]", "of sequences of vectors"},
      {"dropout P", "zeroes with probability P while training"},
      {"relu", ""},
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
  MACAW_ASSIGN_OR_RETURN(Layer layer, ParseKind(words, input, first));
  MACAW_RETURN_IF_ERROR(words.Done());
  return layer;
}

absl::StatusOr<Shape> OutputShape(const Layer& layer, const Shape& input) {
  return std::visit(ShapeOf{input}, layer);
}

}  // namespace macaw::models
