#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::training::fused {

// The instruction sets that every kernel is compiled for. Results have the same bits on one of
// them, whatever the processor, and differ in the last places between them (vector widths change
// the order of sums; only avx2, avx512 and neon have fused multiply-add).
enum class Isa : uint8_t { kPortable, kSse4, kAvx2, kAvx512, kNeon };

absl::string_view Name(Isa isa);  // "portable", "sse4", "avx2", "avx512", "neon"

// What this processor can run and this build holds, best first; never empty.
std::vector<Isa> SupportedIsas();

// The best of those, or the one that the environment variable MACAW_SIMD names. An unknown name, or
// one that this processor cannot run, is an error that lists what it can.
absl::StatusOr<Isa> ChooseIsa();

}  // namespace macaw::training::fused
