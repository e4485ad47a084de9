#include "training/doctor.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/clock.h"
#include "models/one_thread.h"

namespace macaw::training {

double MeasureBlas() {
  models::UseOneThread();
  constexpr int64_t kSize = 768;
  const at::Tensor a = at::rand({kSize, kSize}), b = at::rand({kSize, kSize});
  at::Tensor product = at::mm(a, b);
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const TimePoint begin = SteadyClock().Now();
    at::mm_out(product, a, b);
    best =
        std::max(best, 2.0 * kSize * kSize * kSize / ToSeconds(SteadyClock().Now() - begin) / 1e9);
  }
  return best;
}

}  // namespace macaw::training
