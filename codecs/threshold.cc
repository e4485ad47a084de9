// Numbers of at least a given size stay: Strom, "Scalable Distributed DNN Training Using Commodity
// GPU Cloud Computing", Interspeech 2015, with the numbers themselves instead of their signs.
#include <cmath>
#include <limits>

#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class Threshold final : public Codec {
 public:
  explicit Threshold(double least) : least_(least) {}

  void Apply(VectorView v, Draws&) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      for (T& value : values) {
        if (std::fabs(static_cast<double>(value)) < least_) value = 0;  // a NaN is not below it
      }
    });
  }
  Bias bias() const override { return Bias::kLarge; }
  bool sparse() const override { return true; }

 private:
  const double least_;
};

}  // namespace

MadeCodec MakeThreshold(Line& line, const CodecUse&) {
  MACAW_ASSIGN_OR_RETURN(const double least, line.Number("the least |value| that stays",
                                                         std::numeric_limits<double>::infinity()));
  MACAW_RETURN_IF_ERROR(line.End("\"threshold VALUE\""));
  return std::make_unique<Threshold>(least);
}

}  // namespace macaw::codecs
