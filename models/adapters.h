#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/vector.h"
#include "models/spec.h"

namespace macaw::models {

// [model] adapters: a linear map x·Wᵀ + b becomes x·Wᵀ + b + scale·(x·Aᵀ)·Bᵀ, with A [r, in],
// B [out, r] and scale = α/r (LoRA; Hu et al. 2021, equation 3). This file does not need LibTorch.

// A line of ModelConfig::adapters, "lora RANK [alpha A] [start zero|pissa] PATTERN".
struct AdapterRule {
  Adapter adapter;
  std::string glob;  // on the names of the weights of linear maps
};
// Without `alpha`, α is the rank, so the scale is 1. An error says what the text should be.
absl::StatusOr<AdapterRule> ParseAdapter(absl::string_view text);

// Gives each linear map of the layers the adapter of the first rule that names its weight
// ("0.weight", "1.self_attn.in_proj_weight"). An error names the rule, if it is the first for no
// weight or its rank is larger than a side of one.
absl::Status AddAdapters(const std::vector<std::string>& rules, std::vector<Layer>& layers);

// Refuses rules that give a weight of the model another scale than its own adapter has. An error
// names the weight and both scales.
absl::Status CheckScales(const ModelSpec& spec, const std::vector<std::string>& rules);

// The model without its adapters: W alone. Nothing of it is frozen.
absl::StatusOr<ModelSpec> WithoutAdapters(const ModelSpec& spec);

// A vector of `spec` whose other tensors are those of `plain`, a vector of WithoutAdapters(spec),
// and whose adapters are InitialModel's for the seed: A normal with variance 1/(3·in), which is the
// variance of peft's uniform A, and B zero. StartAdapters has to follow.
FlatVector WithInitialAdapters(const ModelSpec& spec, const FlatVector& plain, uint64_t seed);

// Carries out the starts of adapters. kZero: leaves A and B as they are. kPissa (Meng, Wang and
// Zhang 2024, equations 2 to 4): with W = U·S·Vᵀ and the r largest singular values,
// A ← (S/scale)^½·Vᵀ, B ← U·(S/scale)^½ and W ← W − scale·B·A, so the model computes the same. An
// error names a weight that is not finite or has fewer than r singular values above 0.
absl::Status StartAdapters(const ModelSpec& spec, FlatVector& model);

// A model and a vector of it.
struct MergedModel {
  ModelSpec spec;
  FlatVector model;
};
// The model without adapters that computes the same: W ← W + scale·B·A, computed in double and
// rounded once.
absl::StatusOr<MergedModel> MergeAdapters(const ModelSpec& spec, const FlatVector& model);

}  // namespace macaw::models
