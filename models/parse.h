#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/spec.h"

namespace macaw::models {

// The syntax of one kind of layer, for people: {"conv OUT KERNEL [pad P] …", "images: a
// convolution"}.
struct LayerWords {
  std::string text;
  std::string help;
};
const std::vector<LayerWords>& AllLayerWords();

// Parses a layer as a user writes it (AllLayerWords). `input` is the shape of one example where the
// layer receives it; sizes that follow from it are filled in. `first`: the layer receives the
// example itself. Errors say what is wrong and what would fit; the caller adds the layer's number
// and text.
absl::StatusOr<Layer> ParseLayer(absl::string_view text, const std::vector<int64_t>& input,
                                 bool first);

// The output shape of `layer` for `input`. An error if a kernel is larger than its padded input.
absl::StatusOr<std::vector<int64_t>> OutputShape(const Layer& layer,
                                                 const std::vector<int64_t>& input);

// A shape as text: "[1, 28, 28]".
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace macaw::models
