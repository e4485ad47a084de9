#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/spec.h"
#include "models/words.h"

namespace macaw::models {

// The part of ParseLayer (parse.h) for layers that know positions: "embedding", "attention", ….
bool IsSequenceKind(const std::string& kind);
// Requires IsSequenceKind(words.Kind()).
absl::StatusOr<Layer> ParseSequenceKind(Words& words, const std::vector<int64_t>& input,
                                        bool first);

}  // namespace macaw::models
