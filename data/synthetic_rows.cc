#include "data/synthetic_rows.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/synthetic_rows.cc"
#include "core/isa_targets.h"
// isa_targets.h must come before foreach_target.h, which reads its macros.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macaw::data::synthetic {
namespace HWY_NAMESPACE {

// One score per class. A vector type of the compiler, because the compiler alone does not keep the
// sum in registers (this is 2.4 times as fast). It is element-wise, like any other loop here.
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// The local arrays keep the scores in registers, because nothing written through `features` can
// alias them.
void Rows(const ClientModel& model, const float* deviations, const float* draws, size_t rows,
          float* features, int32_t* classes) {
  for (size_t row = 0; row < rows; ++row) {
    float x[kFeatures];
    for (size_t j = 0; j < kFeatures; ++j)
      x[j] = model.center[j] + deviations[j] * draws[row * kDraws + j];
    std::memcpy(features + row * kFeatures, x, sizeof(x));
    Lanes score;
    std::memcpy(&score, model.bias.data(), sizeof(score));
    for (size_t j = 0; j < kFeatures; ++j) {
      Lanes weights;
      std::memcpy(&weights, model.weights.data() + j * kLanes, sizeof(weights));
      score += x[j] * weights;
    }
    int32_t best = 0;
    float highest = score[0];
    for (int32_t c = 1; c < static_cast<int32_t>(kClasses); ++c) {
      best = score[c] > highest ? c : best;
      highest = score[c] > highest ? score[c] : highest;
    }
    classes[row] = best;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace macaw::data::synthetic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macaw::data::synthetic {

void MakeRows(const ClientModel& model, const float* deviations, const float* draws, size_t rows,
              float* features, int32_t* classes) {
  MACAW_FOR_ISA(BestIsa(), Rows, model, deviations, draws, rows, features, classes);
}

}  // namespace macaw::data::synthetic
#endif  // HWY_ONCE
