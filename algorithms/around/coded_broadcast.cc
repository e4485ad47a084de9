#include "algorithms/around/coded_broadcast.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/factored.h"
#include "algorithms/around/guard.h"
#include "codecs/line.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

std::string TextOf(const BroadcastConfig& broadcast) {
  return absl::StrCat("broadcast.codec = ", codecs::TextOf(broadcast.codec));
}

bool IsOfChange(const BroadcastConfig& broadcast, const Setup& setup) {
  return broadcast.of == "change" || (broadcast.of == "auto" && AllTakePart(setup));
}

absl::StatusOr<std::unique_ptr<codecs::Codec>> CodecOf(const BroadcastConfig& broadcast,
                                                       bool of_change) {
  for (const std::string& line : broadcast.codec) {
    if (codecs::Line(line).name() == "rotate") {
      return absl::InvalidArgumentError(
          "\"rotate\" is for update.codec alone, where the server undoes it once for the clients' "
          "sum; here each device would have to, for weights that it does not help and for changes "
          "of which it saves half a bit a weight: take it out, and one bit more");
    }
    if (IsFactored({.codec = {line}})) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", line, "\" acts on the clients' sum and is for update.codec alone"));
    }
  }
  // What is dropped comes again with the next change.
  return codecs::ParseCodec(broadcast.codec, {.scaled = !of_change});
}

absl::Status CheckBroadcast(const Description& rule, const BroadcastConfig& broadcast,
                            const Setup& setup) {
  const bool of_change = IsOfChange(broadcast, setup);
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<codecs::Codec> codec, CodecOf(broadcast, of_change));
  if (rule.has_several_models) {
    return absl::InvalidArgumentError("is of one model, and the server of this rule sends several");
  }
  if (rule.has_statistics) {
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    if (schema.up.size() > 1) {
      return absl::InvalidArgumentError(
          "changes the layers at which clients sum, while the server keeps them as they are, and the "
          "layers behind would be those of another model: take broadcast.codec out");
    }
  }
  if (rule.pools_clients || !rule.has_common_model) {
    return absl::InvalidArgumentError(
        "is for rules whose clients train from the server's model, and this one's do not");
  }
  if (of_change && !AllTakePart(setup)) {
    return absl::InvalidArgumentError(
        "broadcast.of = \"change\": a client needs the model of the round before, and here not all "
        "clients take part in each round: use broadcast.of = \"model\"");
  }
  if (!of_change && (codec->sparse() || codec->bias() == codecs::Bias::kLarge)) {
    return absl::InvalidArgumentError(
        "would leave most of the model out, or move it: with broadcast.of = \"model\" take bits, "
        "qsgd, bf16 or f16; where all clients take part in each round, broadcast.of = \"change\" "
        "takes every codec");
  }
  return absl::OkStatus();
}

}  // namespace

Description WithCodedBroadcast(const Description& rule, const BroadcastConfig& broadcast) {
  Description result = rule;
  result.check = [rule, broadcast](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    const absl::Status status = CheckBroadcast(rule, broadcast, setup);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(TextOf(broadcast), ": ", status.message()));
  };
  result.notes = [rule, broadcast, check = result.check](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(setup);
    if (!check(setup).ok()) return notes;  // the run will be refused
    const bool of_change = IsOfChange(broadcast, setup);
    notes.push_back(absl::StrCat(
        TextOf(broadcast), ": clients train from ",
        of_change ? "the model of the round before and a compressed change" : "a compressed model",
        ", and the server keeps its own"));
    return notes;
  };
  result.schema = [rule, broadcast](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    schema.whose = WhoseOf(rule);
    if (schema.down.empty()) return schema;  // CheckSchema refuses it
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<codecs::Codec> codec,
                           CodecOf(broadcast, IsOfChange(broadcast, setup)));
    schema.down[0].coded = true;
    schema.down[0].levels = codec->levels();
    schema.metrics.push_back({.name = kBroadcastErrorMetric});
    return schema;
  };
  result.server = [rule, broadcast](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    const bool of_change = IsOfChange(broadcast, setup);
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<codecs::Codec> codec, CodecOf(broadcast, of_change));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(setup, std::move(model)));
    return MakeCodedBroadcastServer(std::move(inner), std::move(codec), of_change,
                                    schema.down[0].name, setup.layout);
  };
  return result;
}

}  // namespace macaw::algorithms
