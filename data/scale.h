#pragma once

#include <cstddef>

namespace macaw::data {

// to[i] = from[i]·scale + shift for `count` elements of type From (uint8_t or float; `type` names
// it), which may be unaligned. To: float or double. Each element is converted on its own by the
// same two operations, so its bits depend neither on its place nor on its neighbours, and all
// instruction sets give the same.
template <typename From, typename To>
void ScaleRun(const From* type, const std::byte* from, size_t count, To scale, To shift, To* to);

}  // namespace macaw::data
