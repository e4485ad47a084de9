#include "bench/fma_peak.h"

#include <algorithm>

#include "bench/frame.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cc"
#include "core/isa_targets.h"
// isa_targets.h comes before what reads it.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "training/fused/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::training::fused {
namespace HWY_NAMESPACE {

double FmaPeak() {
  constexpr size_t kChains = 12, kSteps = 100000;
  const Floats d;
  double best = 0;
  float kept = 0;
  for (int repeat = 0; repeat < 50; ++repeat) {
    FloatVector sums[kChains];
    MACAW_UNROLL for (size_t i = 0; i < kChains; ++i) {
      sums[i] = hn::Set(d, static_cast<float>(i));
    }
    const FloatVector x = hn::Set(d, 0.5f), y = hn::Set(d, 1.0f);
    const double start = bench::ThreadSeconds();
    for (size_t step = 0; step < kSteps; ++step) {
      MACAW_UNROLL for (size_t i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], x, y);
    }
    const double time = bench::ThreadSeconds() - start;
    MACAW_UNROLL for (size_t i = 0; i < kChains; ++i) kept += hn::GetLane(sums[i]);
    best = std::max(best, 2e-9 * kChains * kSteps * kWidth / time);
  }
  return kept != 0 ? best : 0;  // the sums must be wanted
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::training::fused
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::training::fused {

double PeakOf(Isa isa) { MACAW_FOR_ISA(isa, FmaPeak); }

}  // namespace macaw::training::fused

namespace macaw::bench {

double MeasureFmaPeak(training::fused::Isa isa) { return training::fused::PeakOf(isa); }

}  // namespace macaw::bench
#endif
