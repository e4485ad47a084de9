#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/isa.h"

namespace macaw::training::fused {

// Every kernel is compiled for each instruction set. On one instruction set results have the same
// bits on every processor. Between instruction sets they differ in the last places: vector widths
// change the order of sums, and only avx2, avx512 and neon have fused multiply-add.
using macaw::Isa;
using macaw::Name;
using macaw::SupportedIsas;

// The best of SupportedIsas() ("auto"), or the one that `wanted` names (workers.instruction_set).
// An unknown name, or one that this processor cannot run, is an error that lists those it can.
absl::StatusOr<Isa> ChooseIsa(absl::string_view wanted);

}  // namespace macaw::training::fused
