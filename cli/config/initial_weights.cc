// What a run starts from: model.init.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/config/resolve.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "models/adapters.h"
#include "server/split_model.h"

namespace macaw::cli {

bool InitFollowsTheSeed(const Config& config) {
  return absl::StrContains(config.node.model_init, kSeedInPath) &&
         config.run.model.seed == config.run.seed;
}

std::string InitFileOf(const Config& config) {
  return absl::StrReplaceAll(config.node.model_init,
                             {{kSeedInPath, absl::StrCat(config.run.model.seed)}});
}

namespace {

// Of a file that says how its adapters count, as runs write it: whether that is as in this model.
absl::Status CheckScalesOf(const SafetensorsFile& file, const models::ModelSpec& spec) {
  const auto rules = file.metadata().find(server::kAdaptersMetadata);
  if (rules == file.metadata().end()) return absl::OkStatus();
  return Annotate(models::CheckScales(spec, absl::StrSplit(rules->second, '\n')), "model.init");
}

// The name of a model's first adapter.
const std::string& AdapterOf(const models::ModelSpec& spec) {
  return spec.layout->entries()[spec.adapters.front().a].name;
}

// As model.init says, of a model without adapters or of all its tensors.
absl::StatusOr<FlatVector> PlainWeights(const Config& config, const models::ModelSpec& spec) {
  if (config.node.model_init.empty()) return models::InitialModel(spec, config.run.model.seed);
  if (config.node.model_init == "zero") {
    FlatVector weights = models::InitialModel(spec, config.run.model.seed);
    const uint64_t bytes = spec.layout->parameter_size() * SizeOf(spec.layout->dtype());
    // Buffers keep their initial values.
    std::fill_n(weights.view().bytes.data(), bytes, std::byte{0});
    return weights;
  }
  absl::StatusOr<FlatVector> weights = ReadModel(InitFileOf(config), spec.layout);
  if (!weights.ok()) return Annotate(weights.status(), "model.init");
  return weights;
}

}  // namespace

absl::StatusOr<FlatVector> InitialWeights(const Config& config, const models::ModelSpec& spec) {
  if (config.node.model_init.empty() && spec.is_script()) {
    return absl::InvalidArgumentError(
        "model.init is missing: a model of which the run knows the tensors alone starts from the "
        "values in a file, which `macaw simulate` writes beside the config.toml of the run");
  }
  if (spec.adapters.empty()) return PlainWeights(config, spec);
  if (!config.node.model_init.empty() && config.node.model_init != "zero") {
    // The model of a run with adapters has them in its file, and they go on from there.
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(InitFileOf(config));
    if (!file.ok()) return Annotate(file.status(), "model.init");
    if (file->tensors().contains(AdapterOf(spec))) {
      absl::StatusOr<FlatVector> weights = PlainWeights(config, spec);
      if (weights.ok()) MACAW_RETURN_IF_ERROR(CheckScalesOf(*file, spec));
      return weights;
    }
  }
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec plain, models::WithoutAdapters(spec));
  MACAW_ASSIGN_OR_RETURN(const FlatVector weights, PlainWeights(config, plain));
  FlatVector model = models::WithInitialAdapters(spec, weights, config.run.model.seed);
  MACAW_RETURN_IF_ERROR(models::StartAdapters(spec, model));
  return model;
}

}  // namespace macaw::cli
