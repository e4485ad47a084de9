#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::codecs {

// The random numbers that a codec may use.
struct Draws {
  RandomStream own;     // of this client in this round
  RandomStream common;  // the same for all clients of the round
};

// How far the mean of C(v) over the draws is from v.
enum class Bias : uint8_t {
  kNone,      // E[C(v)] = v
  kRounding,  // by a rounding of each number: error feedback would keep next to nothing
  kLarge,     // by a part of v itself: error feedback gives it back in later rounds
};

// C of compression: what a receiver decodes of a vector. A codec is arithmetic alone. What it makes
// is zero in many places, or takes few values, and the wire form of sums (aggregation) finds that
// out by itself and loses nothing.
//
// A codec changes the tensors of Group::kParameter. Buffers and the gaps between tensors stay as
// they are. Zeros stay zeros. Works on f32 and f64 layouts. A NaN or an infinity in the input
// leaves at least one in the output, so that the sum refuses the client.
//
// A quantiser writes values static_cast<float>(double{step} * k), with one float `step` for each
// aligned piece of kPiece numbers of a tensor, or for the whole tensor, and whole |k| ≤ 128.
//
// Immutable; all threads at once.
class Codec {
 public:
  virtual ~Codec() = default;
  // v ← C(v).
  virtual void Apply(VectorView v, Draws& draws) const = 0;
  virtual Bias bias() const = 0;
  // Most numbers of C(v) are zero.
  virtual bool sparse() const { return false; }
  // The largest |k| of a quantiser, for whoever writes its values; 0: it is none.
  virtual uint32_t levels() const { return 0; }
};

// The numbers that share a step at least.
inline constexpr size_t kPiece = 512;

// Where a codec stands.
struct CodecUse {
  // Random-k multiplies what stays by d/k, which makes it unbiased; false where what it drops is
  // fed back.
  bool scaled = true;
  bool rotated = false;  // it acts on R v (rotation.h)
};

// The codec of some lines, which act one after the other: {"topk 0.01", "bits 8"}. README.md lists
// them. Errors name the line, what is wrong with it and what would be right.
absl::StatusOr<std::unique_ptr<Codec>> ParseCodec(const std::vector<std::string>& lines,
                                                  const CodecUse& use = {});

// ["topk 0.01", "bits 8"], as in a configuration, for messages.
std::string TextOf(const std::vector<std::string>& lines);

}  // namespace macaw::codecs
