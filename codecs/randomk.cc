// Random-k with indices that all clients of a round share: the projection of the mean is the mean
// of the projections. Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018; scaled
// by d/k it is the unbiased sparsifier of Wangni et al., 2018.
#include <algorithm>
#include <cmath>
#include <vector>

#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/fraction.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class RandomK final : public Codec {
 public:
  RandomK(double fraction, bool scaled) : fraction_(fraction), scaled_(scaled) {}

  void Apply(VectorView v, Draws& draws) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      const size_t d = values.size();
      if (d == 0) return;
      const size_t k = std::max<size_t>(1, FloorOf(fraction_, d));
      if (k == d) return;
      std::vector<uint64_t> kept = SampleWithoutReplacement(draws.common, d, k);
      std::ranges::sort(kept);
      const T factor = scaled_ ? static_cast<T>(static_cast<double>(d) / static_cast<double>(k))
                               : static_cast<T>(1);
      auto next = kept.begin();
      for (size_t i = 0; i < d; ++i) {
        if (next != kept.end() && *next == i) {
          values[i] *= factor;
          ++next;
        } else if (std::isfinite(values[i])) {  // others stay, for the sum to refuse
          values[i] = 0;
        }
      }
    });
  }
  Bias bias() const override { return scaled_ || fraction_ == 1 ? Bias::kNone : Bias::kLarge; }
  bool sparse() const override { return true; }

 private:
  const double fraction_;
  const bool scaled_;
};

}  // namespace

MadeCodec MakeRandomK(Line& line, const CodecUse& use) {
  MACAW_ASSIGN_OR_RETURN(const double fraction, line.Number("the fraction that stays", 1));
  MACAW_RETURN_IF_ERROR(line.End("\"randomk FRACTION\""));
  return std::make_unique<RandomK>(fraction, use.scaled);
}

}  // namespace macaw::codecs
