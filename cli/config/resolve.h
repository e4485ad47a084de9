#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/config/drawable.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// Fills in what depends on the data (task, input shape, classes, normalisation, the totals of the
// clients that can be drawn, a cohort given as a fraction of these), and checks the configuration
// against the data. A plug-in's model becomes its layers. Afterwards the configuration is complete,
// and the server needs no data. Resolving twice changes nothing. Errors name the keys that do not
// fit, and what the data has.
absl::Status Resolve(Config& config, const data::Dataset& dataset, const sdk::Catalogue& catalogue);
// The same with totals of the clients that can be drawn (run.train_clients and so on) that are
// known.
absl::Status Resolve(Config& config, const data::DatasetInfo& info, const Drawable& drawable,
                     const sdk::Catalogue& catalogue);
// The same where every client with training rows can be drawn.
absl::Status Resolve(Config& config, const data::DatasetInfo& info,
                     const sdk::Catalogue& catalogue);

// Whether nothing is left to be filled in.
bool IsResolved(const RunPlan& run);

// An error where the configuration names no data, which a simulation or `macaw plan` needs. It says
// what runs a file without data.
absl::Status CheckNamesData(const Config& config);

// Sets the keys of data.normalise that are not given from the data; afterwards all are given.
void FillNormalise(TransformConfig& transform, const data::DatasetInfo& info);

// For people: "(x / 255 - 0.1307) / 0.3081", or "x, as stored".
std::string NormaliseText(const TransformConfig& transform);

// The model that a resolved configuration describes. An error names [model].
absl::StatusOr<models::ModelSpec> SpecOf(const Config& config);

// Whether the model's embedding knows every token of the data. Of data with more than 2^28 tokens
// (1 GiB) only a part is looked at; a worker that meets another token ends the run.
absl::Status CheckTokens(const Config& config, const models::ModelSpec& spec,
                         const data::Dataset& dataset);

// In the path model.init stands for model.seed: a file of weights for each seed.
inline constexpr char kSeedInPath[] = "{seed}";
// Whether runs that differ in run.seed start from other weights of model.init.
bool InitFollowsTheSeed(const Config& config);
// model.init with the run's model.seed in its path.
std::string InitFileOf(const Config& config);

// The weights before round 1: from the seed, or from model.init. Of a model with adapters, the file
// has all its tensors, or those of the model without: then adapters begin as their `start` says.
absl::StatusOr<FlatVector> InitialWeights(const Config& config, const models::ModelSpec& spec);

// Slots per worker process: as configured, or one for each device of LibTorch's, or so many for
// each of the `devices` of another back end (training::Backends::DevicesFor), or without devices
// the cores that this process may use, divided by the processes.
uint32_t SlotsPerProcess(const worker::WorkersConfig& workers, uint32_t devices = 0);

}  // namespace macaw::cli
