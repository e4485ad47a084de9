#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace macaw {

// Proportional set size of this process in bytes, now: private pages plus its share of the shared
// ones, so that the sum over processes that map one data file counts it once. Reads
// /proc/self/smaps_rollup (about 1 ms).
absl::StatusOr<uint64_t> ProportionalSetSize();

// Makes glibc keep freed memory instead of returning it to the system between training steps. Call
// once, first thing in main(): LibTorch allocates and frees the same large activations in every
// step, and mapping them anew costs more than the arithmetic of a small step.
void KeepFreedMemory();

}  // namespace macaw
