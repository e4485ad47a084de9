#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "codecs/codec.h"
#include "codecs/line.h"

namespace macaw::codecs {

// One function a codec, which reads what follows its name. `scaled`: see ParseCodec.
using MadeCodec = absl::StatusOr<std::unique_ptr<Codec>>;
MadeCodec MakeTopK(Line& line, bool scaled);
MadeCodec MakeRandomK(Line& line, bool scaled);
MadeCodec MakeThreshold(Line& line, bool scaled);
MadeCodec MakeQsgd(Line& line, bool scaled);
MadeCodec MakeTernGrad(Line& line, bool scaled);
MadeCodec MakeSign(Line& line, bool scaled);
MadeCodec MakeBits(Line& line, bool scaled);
MadeCodec MakeHalf(Line& line, bool scaled);

}  // namespace macaw::codecs
