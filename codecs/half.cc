// The 16-bit floating-point formats: IEEE 754's binary16 (f16) and the upper half of binary32
// (bf16), to the nearest number of the format, and to the even one of two. Deterministic, so its
// error is no noise, but it is at most half a unit of the last place.
#include <algorithm>
#include <bit>
#include <cmath>

#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

struct Format {
  int digits;          // behind the point
  int least_exponent;  // of normal numbers
  double largest;      // finite number
};
constexpr Format kF16 = {.digits = 10, .least_exponent = -14, .largest = 65504};
constexpr Format kBf16 = {.digits = 7, .least_exponent = -126, .largest = 0x1.FEp127};

// Finite numbers beyond the largest become that one.
double Nearest(double x, const Format& format) {
  if (x == 0 || !std::isfinite(x)) return x;
  if (std::fabs(x) >= format.largest) return std::copysign(format.largest, x);
  const int exponent = static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7FF) - 1023;
  // 1.5 · 2^(52 + e): a number beside which a double has no digits below the format's last one.
  const int e = std::max(exponent, format.least_exponent) - format.digits;
  const auto anchor =
      std::bit_cast<double>((static_cast<uint64_t>(1023 + 52 + e) << 52) | (uint64_t{1} << 51));
  return std::clamp((x + anchor) - anchor, -format.largest, format.largest);
}

class Half final : public Codec {
 public:
  explicit Half(const Format& format) : format_(format) {}

  void Apply(VectorView v, Draws&) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      for (T& value : values) value = static_cast<T>(Nearest(static_cast<double>(value), format_));
    });
  }
  Bias bias() const override { return Bias::kRounding; }

 private:
  const Format format_;
};

}  // namespace

MadeCodec MakeHalf(Line& line, const CodecUse&) {
  const std::string& name = line.name();
  MACAW_RETURN_IF_ERROR(line.End("the name alone"));
  return std::make_unique<Half>(name == "f16" ? kF16 : kBf16);
}

}  // namespace macaw::codecs
