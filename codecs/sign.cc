// Scaled signs: Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other
// Gradient Compression Schemes", ICML 2019, with the scale of the numbers that are not zero. Behind
// top-k it is sparse ternary compression (Sattler et al., 2019).
#include <cmath>

#include "codecs/levels.h"
#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class Sign final : public Codec {
 public:
  void Apply(VectorView v, Draws&) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      double norm = 0;
      size_t count = 0;  // sign(0) = 0
      for (const T value : values) {
        norm += std::fabs(static_cast<double>(value));
        count += value != 0 ? 1 : 0;
      }
      if (count == 0) return;
      const auto step = static_cast<float>(norm / static_cast<double>(count));
      if (!std::isfinite(step)) return;  // as the values are
      for (T& value : values) value = LevelOf<T>(step, value > 0 ? 1 : value < 0 ? -1 : 0);
    });
  }
  Bias bias() const override { return Bias::kLarge; }
  uint32_t levels() const override { return 1; }
};

}  // namespace

MadeCodec MakeSign(Line& line, bool) {
  MACAW_RETURN_IF_ERROR(line.End("\"sign\""));
  return std::make_unique<Sign>();
}

}  // namespace macaw::codecs
