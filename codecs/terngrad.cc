// TernGrad: Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
// Learning", NIPS 2017, equation 3, with a scale for each client, and optionally its clip (section
// 4), which makes it biased.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "codecs/levels.h"
#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class TernGrad final : public Codec {
 public:
  explicit TernGrad(std::optional<double> clip) : clip_(clip) {}

  void Apply(VectorView v, Draws& draws) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      if (clip_.has_value()) Clip(values);
      RoundToLevels(values, StepFor(LargestOf<T>(values), 1), draws.own);
    });
  }
  uint32_t levels() const override { return 1; }
  Bias bias() const override { return clip_.has_value() ? Bias::kLarge : Bias::kNone; }

 private:
  // To C standard deviations of the tensor. A tensor with a value that is not finite stays.
  template <typename T>
  void Clip(std::span<T> values) const {
    double sum = 0, squares = 0;
    for (const T value : values) sum += static_cast<double>(value);
    const double mean = values.empty() ? 0 : sum / static_cast<double>(values.size());
    for (const T value : values) {
      const double rest = static_cast<double>(value) - mean;
      squares += rest * rest;
    }
    const double most =
        values.empty() ? 0 : *clip_ * std::sqrt(squares / static_cast<double>(values.size()));
    if (!std::isfinite(most) || most == 0) return;
    const T bound = static_cast<T>(most);
    for (T& value : values) value = std::clamp(value, -bound, bound);
  }

  const std::optional<double> clip_;  // C
};

}  // namespace

MadeCodec MakeTernGrad(Line& line, const CodecUse&) {
  std::optional<double> clip;
  if (line.Take("clip")) {
    MACAW_ASSIGN_OR_RETURN(clip, line.Number("the clip, in standard deviations,",
                                             std::numeric_limits<double>::infinity()));
  }
  MACAW_RETURN_IF_ERROR(line.End("\"terngrad\", and behind it clip DEVIATIONS"));
  return std::make_unique<TernGrad>(clip);
}

}  // namespace macaw::codecs
