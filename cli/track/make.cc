#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/track/tracker.h"

namespace macaw::cli {

absl::StatusOr<std::unique_ptr<Tracker>> MakeTracker(const std::string& name,
                                                     const TrackConfig& config) {
  if (name == "csv") return MakeCsvTracker();
  if (name == "tensorboard") return MakeTensorBoardTracker();
  if (name == "wandb") return MakeWandbTracker(config);
  if (name == "mlflow") return MakeMlflowTracker(config);
  return absl::InvalidArgumentError(absl::StrCat("run.track: there is no tracker \"", name, "\""));
}

}  // namespace macaw::cli
