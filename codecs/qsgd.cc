// QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
// Quantization and Encoding", NIPS 2017, section 3.1: s levels of the norm of each bucket.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "codecs/levels.h"
#include "codecs/makers.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

class Qsgd final : public Codec {
 public:
  Qsgd(int levels, size_t bucket) : levels_(levels), bucket_(bucket) {}

  void Apply(VectorView v, Draws& draws) const override {
    ForEachTensor(v, [&]<typename T>(std::span<T> values) {
      ForEachPiece(values, bucket_, [&](std::span<T> bucket) {
        double squares = 0;
        for (const T value : bucket)
          squares += static_cast<double>(value) * static_cast<double>(value);
        if (squares == 0 && LargestOf<T>(bucket) == 0) return;
        // ‖v‖/s. Squares of tiny doubles may vanish: their largest is a norm below the sum's.
        const double norm = std::fmax(std::sqrt(squares), LargestOf<T>(bucket));
        RoundToLevels(bucket, StepFor(norm, levels_), draws.own);
      });
    });
  }
  Bias bias() const override { return Bias::kNone; }
  uint32_t levels() const override { return static_cast<uint32_t>(levels_) + 1; }

 private:
  const int levels_;     // s
  const size_t bucket_;  // numbers
};

}  // namespace

MadeCodec MakeQsgd(Line& line, const CodecUse&) {
  MACAW_ASSIGN_OR_RETURN(const uint64_t levels, line.Whole("the number of levels", 1, 127));
  uint64_t bucket = kPiece;
  if (line.Take("bucket")) {
    MACAW_ASSIGN_OR_RETURN(bucket, line.Whole("the size of a bucket", kPiece, uint64_t{1} << 40));
    if (bucket % kPiece != 0) {
      return line.Refuse(absl::StrCat("the size of a bucket must be a multiple of ", kPiece,
                                      ": an update is sent in pieces of that many numbers, each "
                                      "with one step"));
    }
  }
  MACAW_RETURN_IF_ERROR(line.End("\"qsgd LEVELS\", and behind it bucket SIZE"));
  return std::make_unique<Qsgd>(static_cast<int>(levels), bucket);
}

}  // namespace macaw::codecs
