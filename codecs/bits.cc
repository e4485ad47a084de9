// Whole numbers of n bits, by stochastic rounding: Gupta, Agrawal, Gopalakrishnan, Narayanan, "Deep
// Learning with Limited Numerical Precision", ICML 2015, with a step for each piece of numbers.
#include "codecs/levels.h"
#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class Bits final : public Codec {
 public:
  explicit Bits(int bits) : levels_((1 << (bits - 1)) - 1) {}

  void Apply(VectorView v, Draws& draws) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      ForEachPiece(values, kPiece, [&](std::span<T> piece) {
        RoundToLevels(piece, StepFor(LargestOf<T>(piece), levels_), draws.own);
      });
    });
  }
  Bias bias() const override { return Bias::kNone; }
  uint32_t levels() const override { return static_cast<uint32_t>(levels_) + 1; }

 private:
  const int levels_;  // on each side of zero
};

}  // namespace

MadeCodec MakeBits(Line& line, const CodecUse&) {
  MACAW_ASSIGN_OR_RETURN(const uint64_t bits, line.Whole("the number of bits", 2, 8));
  MACAW_RETURN_IF_ERROR(line.End("\"bits NUMBER\""));
  return std::make_unique<Bits>(static_cast<int>(bits));
}

}  // namespace macaw::codecs
