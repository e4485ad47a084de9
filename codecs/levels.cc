#include "codecs/levels.h"

#include <cmath>
#include <limits>

#include "codecs/codec.h"
#include "codecs/tensors.h"

namespace macaw::codecs {

float StepFor(double largest, int levels) {
  if (largest == 0) return 0;
  auto step = static_cast<float>(largest / levels);
  // So that no value lies beyond the last level. A NaN is below nothing.
  while (static_cast<double>(step) * levels < largest)
    step = std::nextafter(step, std::numeric_limits<float>::infinity());
  return step;
}

template <typename T>
void RoundToLevels(std::span<T> values, float step, RandomStream& random) {
  if (!std::isfinite(step)) return;
  if (step == 0) {
    std::ranges::fill(values, T{0});
    return;
  }
  uint64_t drawn[kPiece];
  ForEachPiece(values, kPiece, [&](std::span<T> piece) {
    random.FillU64(std::span(drawn, piece.size()));
    for (size_t i = 0; i < piece.size(); ++i) {
      const double level = std::fabs(static_cast<double>(piece[i])) / static_cast<double>(step);
      const int below = static_cast<int>(level);
      const double uniform = static_cast<double>(drawn[i] >> 11) * 0x1p-53;
      const int k = below + (uniform < level - below ? 1 : 0);
      piece[i] = LevelOf<T>(step, piece[i] < 0 ? -k : k);
    }
  });
}
template void RoundToLevels(std::span<float>, float, RandomStream&);
template void RoundToLevels(std::span<double>, float, RandomStream&);

}  // namespace macaw::codecs
