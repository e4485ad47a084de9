#pragma once

#include "absl/status/status.h"
#include "core/vector.h"
#include "models/spec.h"

namespace macaw::models {

// Makes the layout of the spec's layers, with the place of each layer's tensors and of each
// adapter's. Requires layers whose sizes are filled in, at least one of which has a parameter.
absl::Status LayOut(DType dtype, ModelSpec& spec);

}  // namespace macaw::models
