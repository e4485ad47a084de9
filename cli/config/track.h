#pragma once

#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw::cli {

// Where a run's metrics go beside metrics.jsonl (cli/track/). It decides nothing of the run.
struct TrackConfig {
  std::vector<std::string> to;  // names of Trackers()
  // A tracking URI of MLflow; "": MLFLOW_TRACKING_URI of the environment, or else MLflow's default.
  std::string mlflow_uri;
  std::string mlflow_experiment = "macaw";
  std::string wandb_project = "macaw";
};

// The trackers by name: "tensorboard", "mlflow", "wandb", "csv".
const std::vector<std::string>& Trackers();

// The keys of [run] that say it, with their full names.
settings::Section<TrackConfig> TrackSection();

}  // namespace macaw::cli
