#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "core/blocks.h"
#include "core/buffer.h"
#include "core/vector.h"

namespace macaw::fleet {

// Short forms of the bytes that EncodeVectors makes of one vector (vector_codec.h), for what a
// codec has made. A receiver gets the same bytes again, so their digest names any form:
//
//   magic · version · 1 if it is a change, else 0 · digest of the layout · blocks (core/blocks.h)
//
// The blocks are those of the vector, or of a change (AddChange) of the vector `before`, which the
// receiver must have.

// Nothing, if the form would not give the vector's bytes back, or is not shorter. Vectors of f32
// alone have such forms.
std::optional<AlignedBuffer> EncodeCompact(ConstVectorView vector, ValueForms forms);
std::optional<AlignedBuffer> EncodeCompactChange(ConstVectorView before, ConstVectorView change,
                                                 ConstVectorView vector, ValueForms forms);

// The bytes of EncodeVectors. `before`: those of the vector that a change is of; empty where the
// form stands alone. Safe for any bytes of the form.
absl::StatusOr<AlignedBuffer> ExpandCompact(std::span<const std::byte> bytes,
                                            const LayoutPtr& layout,
                                            std::span<const std::byte> before = {});

}  // namespace macaw::fleet
