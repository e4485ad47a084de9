#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "plan/task.h"
#include "training/objective.h"

namespace macaw::training {

// Models of texts: what model, data and task need of each other. All trainers share it.

// Errors say which of the three does not fit the others. Scripted modules say neither what they
// take nor what they return, so `spec` has that filled in.
absl::Status CheckSequences(const models::ModelSpec& spec, data::FeatureType type, TaskKind task);

// That the model knows the tokens. A scripted module refuses those that it does not know itself.
absl::Status CheckTokens(const models::ModelSpec& spec, std::span<const int32_t> tokens);

// The labels of a text's positions in a next-token task: the token behind each, for the last one in
// use the text's own label, and kNoLabel for padding. `labels` has one element per token.
template <typename Label>
void LabelPositions(std::span<const int32_t> tokens, size_t used, int64_t own, Label* labels) {
  std::fill_n(labels, tokens.size(), static_cast<Label>(kNoLabel));
  if (used == 0) return;
  std::copy_n(tokens.begin() + 1, used - 1, labels);
  labels[used - 1] = static_cast<Label>(own);
}

}  // namespace macaw::training
