#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/config/config.h"
#include "cli/config/document.h"
#include "data/dataset.h"
#include "sdk/catalogue.h"
#include "training/backends.h"
#include "worker/worker.h"

namespace macaw::cli {

// `macaw-worker check`: prints what this node would bring to a fleet, and trains one step on its
// data. `plan`: a server's file (`macaw plan`); "": a small model on data of this shape. Nothing is
// sent to anybody.
absl::Status CheckNode(const Document& document, const Config& config, const std::string& plan,
                       const worker::Options& options, const data::Dataset& dataset,
                       const sdk::Catalogue& catalogue, training::Backends& backends);

}  // namespace macaw::cli
