#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw {

// The instruction sets that kernels are compiled for (core/isa_targets.h).
enum class Isa : uint8_t { kPortable, kSse4, kAvx2, kAvx512, kNeon };

absl::string_view Name(Isa isa);  // "portable", "sse4", "avx2", "avx512", "neon"

// The instruction sets of this build that the processor can run, best first; never empty.
std::vector<Isa> SupportedIsas();
// The first of them.
Isa BestIsa();

}  // namespace macaw
