#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/spec.h"

namespace macaw::models {

// A layer as a user writes it, for one that receives `input` (the shape of one example):
//
//   images      conv OUT KERNEL [pad P] [stride S] [nobias] · block OUT [stride S] [groups G] ·
//               block OUT [stride S] batchnorm · maxpool KERNEL [stride S] · avgpool KERNEL
//               [stride S] · globalavgpool · groupnorm GROUPS
//   sequences   embedding TOKENS OUT · lstm OUT [layers N]
//   vectors, or each position of a sequence       linear OUT [nobias]
//   vectors and images                            batchnorm
//   anything    flatten · dropout P · relu · tanh · sigmoid
//
// Sizes that follow from `input` are filled in; `first`: it receives the example itself. Errors say
// what is wrong and what would fit; the caller adds the layer's number and text.
absl::StatusOr<Layer> ParseLayer(absl::string_view text, const std::vector<int64_t>& input,
                                 bool first);

// The shape that `layer` makes of `input`; an error where a kernel is larger than its padded input.
absl::StatusOr<std::vector<int64_t>> OutputShape(const Layer& layer,
                                                 const std::vector<int64_t>& input);

// "[1, 28, 28]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace macaw::models
