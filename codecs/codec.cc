#include "codecs/codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codecs/line.h"
#include "codecs/makers.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

// C_n(…C_1(v)).
class Chain final : public Codec {
 public:
  explicit Chain(std::vector<std::unique_ptr<Codec>> parts) : parts_(std::move(parts)) {}

  void Apply(VectorView v, Draws& draws) const override {
    for (const auto& part : parts_) part->Apply(v, draws);
  }
  Bias bias() const override {
    Bias most = Bias::kNone;
    for (const auto& part : parts_) most = std::max(most, part->bias());
    return most;
  }
  uint32_t levels() const override {
    uint32_t last = 0;  // a step that rounds to levels is not undone by one that leaves some out
    for (const auto& part : parts_) last = part->levels() > 0 ? part->levels() : last;
    return last;
  }
  bool sparse() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->sparse(); });
  }

 private:
  const std::vector<std::unique_ptr<Codec>> parts_;
};

struct Entry {
  const char* name;
  MadeCodec (*make)(Line&, const CodecUse&);
};
constexpr Entry kCodecs[] = {
    {"topk", MakeTopK}, {"randomk", MakeRandomK},   {"threshold", MakeThreshold},
    {"qsgd", MakeQsgd}, {"terngrad", MakeTernGrad}, {"sign", MakeSign},
    {"bits", MakeBits}, {"bf16", MakeHalf},         {"f16", MakeHalf},
};

MadeCodec Parse(const std::string& text, const CodecUse& use) {
  Line line(text);
  std::vector<std::string> names;
  for (const Entry& codec : kCodecs) {
    if (line.name() == codec.name) return codec.make(line, use);
    names.emplace_back(codec.name);
  }
  if (line.name() == "rotate")
    return line.Refuse("a rotation stands first, and once, and is for update.codec alone");
  if (line.name() == "majority")
    return line.Refuse(
        "a majority is of many clients, stands alone, and is for update.codec alone");
  for (const char* other : {"majority", "rotate", "acpsgd", "powersgd"}) names.emplace_back(other);
  const std::string nearest = NearestWord(line.name(), names);
  const std::string hint =
      nearest.empty() ? "there are: " : absl::StrCat("did you mean '", nearest, "'? There are: ");
  return line.Refuse(
      absl::StrCat("there is no codec '", line.name(), "'; ", hint, absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> ParseCodec(const std::vector<std::string>& lines,
                                                  const CodecUse& use) {
  if (lines.empty()) return absl::InvalidArgumentError("the list of codecs is empty");
  std::vector<std::unique_ptr<Codec>> parts;
  for (const std::string& line : lines) {
    // What a codec makes of R v is no rotated vector any more.
    const bool rotated = use.rotated && parts.empty();
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Codec> part,
                           Parse(line, {.scaled = use.scaled, .rotated = rotated}));
    parts.push_back(std::move(part));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<Chain>(std::move(parts));
}

std::string TextOf(const std::vector<std::string>& lines) {
  const auto quoted = [](std::string* out, const std::string& line) {
    absl::StrAppend(out, "\"", line, "\"");
  };
  return absl::StrCat("[", absl::StrJoin(lines, ", ", quoted), "]");
}

}  // namespace macaw::codecs
