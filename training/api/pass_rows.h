#pragma once

#include <cstdint>

namespace macaw::training {

// The rows of a pass at most, where a stage takes all of a client's rows (gradients, losses) and,
// on devices, in training, too. Part of the bits of a gradient.
inline constexpr uint32_t kPassRows = 128;

}  // namespace macaw::training
