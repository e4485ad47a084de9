#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// Fills in what only the data can say (task, input shape, classes, normalisation, cohort from a
// fraction) and checks what only the two together can: afterwards the configuration stands alone,
// and the server needs no data. A plug-in's model becomes its layers. Resolving twice changes
// nothing. Errors name the keys that do not fit and what the data has.
absl::Status Resolve(Config& config, const data::DatasetInfo& info,
                     const sdk::Catalogue& catalogue);

// The keys of data.normalise that are not given, from the data: afterwards all are given.
void FillNormalise(Config& config, const data::DatasetInfo& info);

// For people: "(x / 255 - 0.1307) / 0.3081", or "x, as stored".
std::string NormaliseText(const TransformConfig& transform);

// What a task other than "auto" is.
TaskKind TaskOf(const std::string& task);

// The model that a resolved configuration describes. An error names [model].
absl::StatusOr<models::ModelSpec> SpecOf(const Config& config);

// Its weights before round 1: from the seed, or from model.init.
absl::StatusOr<FlatVector> InitialWeights(const Config& config, const models::ModelSpec& spec);

// Slots of each worker process: as configured, or the cores of this machine shared out.
uint32_t SlotsPerProcess(const WorkersSection& workers);

}  // namespace macaw::cli
