#pragma once

#include "training/fused/isa.h"

namespace macaw::bench {

// Single-precision GFLOP/s of this core on chains of multiply-adds (multiply and add, where the
// instruction set has none) that touch no memory: best of many short runs.
double MeasureFmaPeak(training::fused::Isa isa);

}  // namespace macaw::bench
