// Scaled signs, with one of two scales:
//
//   ‖v‖₁/d     the least error. Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD
//              and other Gradient Compression Schemes", ICML 2019; here d counts the numbers that
//              are not zero. Behind top-k it is sparse ternary compression (Sattler et al., 2019)
//   ‖v‖²/‖v‖₁  unbiased behind a random rotation: ⟨v, C(v)⟩ = ‖v‖², and what is left of C(v) points
//              everywhere alike. Vargaftik, Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher,
//              "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021, section 4
#include <cmath>

#include "codecs/levels.h"
#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

// Whole tensors of fewer numbers stay as they are under `sign unbiased`: what a Hadamard matrix
// makes of so few has no free direction, and their signs are biased by up to half of v.
constexpr size_t kFewest = 64;

template <typename T>
void ToSigns(std::span<T> values, float step) {
  if (!std::isfinite(step)) return;  // as the values are
  for (T& value : values) value = LevelOf<T>(step, value > 0 ? 1 : value < 0 ? -1 : 0);
}

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
      ToSigns(values, static_cast<float>(norm / static_cast<double>(count)));
    });
  }
  Bias bias() const override { return Bias::kLarge; }
  uint32_t levels() const override { return 1; }
};

// A scale for each piece: blocks of a rotation differ in size, and the numbers of one piece are
// alike.
class UnbiasedSign final : public Codec {
 public:
  void Apply(VectorView v, Draws&) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      if (values.size() < kFewest) return;
      ForEachPiece(values, kPiece, [](std::span<T> piece) {
        double squares = 0, norm = 0;
        for (const T value : piece) {
          const double size = std::fabs(static_cast<double>(value));
          squares += size * size;
          norm += size;
        }
        if (norm == 0) return;
        ToSigns(piece, static_cast<float>(squares / norm));
      });
    });
  }
  Bias bias() const override { return Bias::kNone; }
  uint32_t levels() const override { return 1; }
};

}  // namespace

MadeCodec MakeSign(Line& line, const CodecUse& use) {
  const bool unbiased = line.Take("unbiased");
  MACAW_RETURN_IF_ERROR(line.End("\"sign\", or behind \"rotate\" \"sign unbiased\""));
  if (!unbiased) return std::make_unique<Sign>();
  if (!use.rotated) {
    return line.Refuse(
        "its scale is unbiased for what a random rotation has made: write \"rotate\" right in front "
        "of it, or take \"sign\"");
  }
  return std::make_unique<UnbiasedSign>();
}

}  // namespace macaw::codecs
