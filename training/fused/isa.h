#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::training::fused {

// The instruction sets that every kernel is compiled for. On one instruction set results have the
// same bits on every processor. Between instruction sets they differ in the last places: vector
// widths change the order of sums, and only avx2, avx512 and neon have fused multiply-add.
enum class Isa : uint8_t { kPortable, kSse4, kAvx2, kAvx512, kNeon };

absl::string_view Name(Isa isa);  // "portable", "sse4", "avx2", "avx512", "neon"

// The instruction sets of this build that the processor can run, best first; never empty.
std::vector<Isa> SupportedIsas();

// The best of them ("auto"), or the one that `wanted` names (workers.instruction_set). An unknown
// name, or one that this processor cannot run, is an error that lists those it can.
absl::StatusOr<Isa> ChooseIsa(absl::string_view wanted);

}  // namespace macaw::training::fused
