#include "models/sequence_layers.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "models/parse.h"

namespace macaw::models {
namespace {

using Shape = std::vector<int64_t>;

absl::Status NeedsSequence(const Shape& input) {
  if (input.size() == 2) return absl::OkStatus();
  return Wrong(
      absl::StrCat("needs a sequence of vectors, but ", ShapeText(input),
                   " arrives there: put \"embedding TOKENS OUT\" before it for tokens, or "
                   "give rows of numbers the shape [positions, width] (data.input_shape)"));
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

template <typename Recurrent>
absl::StatusOr<Layer> ParseRecurrent(Words& words, const Shape& input) {
  Recurrent layer;
  layer.in = input[1];
  MACAW_ASSIGN_OR_RETURN(layer.out, words.Number("number of outputs"));
  MACAW_ASSIGN_OR_RETURN(layer.layers, words.Option("layers", 1, 1));
  return layer;
}

absl::StatusOr<int64_t> ParseHeads(Words& words, int64_t width) {
  MACAW_ASSIGN_OR_RETURN(const int64_t heads, words.Needed("heads", 1));
  if (width % heads == 0) return heads;
  return Wrong(absl::StrCat(heads, " heads do not divide vectors of ", width));
}

absl::StatusOr<Layer> ParseAttention(Words& words, const Shape& input) {
  Attention layer{.width = input[1]};
  MACAW_ASSIGN_OR_RETURN(layer.heads, ParseHeads(words, layer.width));
  layer.causal = words.Flag("causal");
  return layer;
}

absl::StatusOr<Layer> ParseTransformer(Words& words, const Shape& input) {
  TransformerBlock layer{.width = input[1]};
  MACAW_ASSIGN_OR_RETURN(layer.heads, ParseHeads(words, layer.width));
  MACAW_ASSIGN_OR_RETURN(layer.ff, words.Needed("ff", 1));
  MACAW_ASSIGN_OR_RETURN(layer.dropout, words.ProbabilityOption("dropout", 0));
  layer.causal = words.Flag("causal");
  return layer;
}

}  // namespace

bool IsSequenceKind(const std::string& kind) {
  return kind == "embedding" || kind == "positions" || kind == "lstm" || kind == "gru" ||
         kind == "attention" || kind == "transformer" || kind == "last" || kind == "mean";
}

absl::StatusOr<Layer> ParseSequenceKind(Words& words, const Shape& input, bool first) {
  const std::string kind = words.Kind();
  if (kind == "embedding") return ParseEmbedding(words, input, first);
  MACAW_RETURN_IF_ERROR(NeedsSequence(input));
  if (kind == "positions") return Positions{.count = input[0], .width = input[1]};
  if (kind == "lstm") return ParseRecurrent<Lstm>(words, input);
  if (kind == "gru") return ParseRecurrent<Gru>(words, input);
  if (kind == "attention") return ParseAttention(words, input);
  if (kind == "transformer") return ParseTransformer(words, input);
  if (kind == "last") return LastPosition{};
  if (kind == "mean") return MeanOfPositions{};
  return absl::InternalError(absl::StrCat("no layer of sequences: ", kind));
}

}  // namespace macaw::models
