#include "training/sequences.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace macaw::training {

absl::Status CheckSequences(const models::ModelSpec& spec, data::FeatureType type, TaskKind task) {
  const bool tokens = type == data::FeatureType::kI32;
  if (tokens != spec.takes_tokens()) {
    return absl::InvalidArgumentError(
        tokens ? "the data holds tokens, and the model's first layer does not take those: begin it "
                 "with \"embedding TOKENS OUT\""
               : "the model takes tokens, and the data does not hold any");
  }
  if ((task == TaskKind::kNextToken) == (spec.positions > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a next-token task and a model with outputs at each position need each other, and model \"",
      spec.name, "\" has outputs ",
      spec.positions > 0 ? "at each position: make one vector of them with \"last\" or \"mean\""
      : tokens           ? "for the whole example: to classify texts, set run.task = "
                           "\"classification\""
                         : "for the whole example"));
}

absl::Status CheckTokens(const models::ModelSpec& spec, std::span<const int32_t> tokens) {
  if (spec.is_script()) {
    const auto negative = std::ranges::find_if(tokens, [](int32_t token) { return token < 0; });
    if (negative == tokens.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("a row has token ", *negative));
  }
  const int64_t known = std::get<models::Embedding>(spec.layers[0]).tokens;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a row has token ", token, ", the model knows 0 to ", known - 1));
  }
  return absl::OkStatus();
}

}  // namespace macaw::training
