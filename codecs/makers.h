#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "codecs/codec.h"
#include "codecs/line.h"

namespace macaw::codecs {

// One function a codec, which reads what follows its name.
using MadeCodec = absl::StatusOr<std::unique_ptr<Codec>>;
MadeCodec MakeTopK(Line& line, const CodecUse& use);
MadeCodec MakeRandomK(Line& line, const CodecUse& use);
MadeCodec MakeThreshold(Line& line, const CodecUse& use);
MadeCodec MakeQsgd(Line& line, const CodecUse& use);
MadeCodec MakeTernGrad(Line& line, const CodecUse& use);
MadeCodec MakeSign(Line& line, const CodecUse& use);
MadeCodec MakeBits(Line& line, const CodecUse& use);
MadeCodec MakeHalf(Line& line, const CodecUse& use);

}  // namespace macaw::codecs
