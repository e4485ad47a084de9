#include "cli/worker_doctor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "training/api/trainer.h"

namespace macaw::cli {

void PrintTorchDoctor() {
  at::set_num_threads(1);
  const NumericProfile profile = training::EagerProfile();
  std::printf("%-12s %s, kernels for %s\n", "libtorch", profile.libraries.c_str(),
              profile.instruction_set.c_str());
  constexpr int64_t kSize = 768;
  const at::Tensor a = at::rand({kSize, kSize}), b = at::rand({kSize, kSize});
  at::Tensor product = at::mm(a, b);
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const TimePoint begin = SteadyClock().Now();
    at::mm_out(product, a, b);
    const double seconds = ToSeconds(SteadyClock().Now() - begin);
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds / 1e9);
  }
  std::printf("%-12s %.0f GFLOP/s on one thread (a product of two %ld x %ld float32 matrices)%s\n",
              "blas", best, static_cast<long>(kSize), static_cast<long>(kSize),
              best < 5 ? "; that is slow: is LibTorch using a reference BLAS?" : "");
}

}  // namespace macaw::cli
