#pragma once

#include <string>

#include "cli/config/config.h"
#include "data/dataset.h"
#include "models/spec.h"

namespace macaw::cli {

// What a run is, for people, a line each.
std::string DataLine(const data::DatasetInfo& info);
std::string ModelLine(const Config& config, const models::ModelSpec& spec);
std::string RoundsLine(const Config& config);

}  // namespace macaw::cli
