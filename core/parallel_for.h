#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"

namespace macaw {

// Cuts [0, count) into pieces of `grain`, the last one perhaps shorter, and calls `work(begin,
// end)` once for each of them, in any order and on several threads at once: the caller's and those
// of a pool that the process shares, in all at most `threads` and at most one a core. Returns when
// all pieces are done. A single piece is a plain call. For work that is limited by memory a piece
// should have about 1 MiB.
//
// `work` must not throw. Any thread may call this, also from within `work`.
void ParallelFor(size_t count, size_t grain, absl::FunctionRef<void(size_t, size_t)> work,
                 size_t threads = SIZE_MAX);

// memcpy of all of `from`, as above. The two must not overlap.
void ParallelCopy(std::span<const std::byte> from, std::byte* to);

}  // namespace macaw
