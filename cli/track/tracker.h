#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/track.h"
#include "cli/track/rows.h"

namespace macaw::cli {

// What trackers tell of a run beside its rows. From the run's folder.
struct RunFacts {
  std::string folder;
  std::string name;
  std::string id;                                             // random, the same for ever
  std::vector<std::pair<std::string, std::string>> settings;  // "local.lr", "0.1": config.toml
  int64_t began_ms = 0;                                       // Unix time
};

// How a run's last session ended, by its log: "finished", "stopped", "interrupted", "failed".
// "": it has not, or its server was killed.
struct RunEnd {
  std::string end;
};

// Where the rows of a run go. It keeps by itself what it has: a row that it has is not delivered
// again, whoever delivers. One thread, but for Interrupt.
class Tracker {
 public:
  virtual ~Tracker() = default;
  // Opens it, or opens it again after an error. Returns the round of the last row that it has.
  virtual absl::StatusOr<int64_t> Open(const RunFacts& facts) = 0;
  // Takes rows behind those that it has. After an error it has some of them or none.
  virtual absl::Status Deliver(const std::vector<Row>& rows) = 0;
  // The run's last row was delivered. The run may be resumed all the same.
  virtual absl::Status Close(const RunEnd& end) = 0;
  // Makes a call that waits return with an error. Any thread.
  virtual void Interrupt() {}
};

// A column file for pandas, metrics.csv. The first rows of a run lack columns that come later, such
// as those of evaluations: then the file is written anew, with empty cells in the earlier rows.
// Numbers are as in metrics.jsonl; what is not finite is "nan".
std::unique_ptr<Tracker> MakeCsvTracker();

// tensorboard/events.out.tfevents.macaw: an Event a row (proto/track/tensorboard.proto), framed as
// TFRecords, and the configuration as a text. A tag is a column's name, a step a round; TensorBoard
// keeps values as float32.
std::unique_ptr<Tracker> MakeTensorBoardTracker();

// wandb/offline-run-TIME-ID/run-ID.wandb, for `wandb sync`: the run with its configuration, and a
// history record a row (proto/track/wandb.proto). No key is needed, and none is read.
std::unique_ptr<Tracker> MakeWandbTracker(const TrackConfig& config);

// A run of an MLflow server, over its REST interface. The run's tag macaw.run_id and
// track/mlflow.json say which one, so a run that goes on goes on there. Secrets come from MLflow's
// own variables of the environment: MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD;
// MLFLOW_TRACKING_SERVER_CERT_PATH names a file with the authority of an https server. An error
// names the key that is missing.
absl::StatusOr<std::unique_ptr<Tracker>> MakeMlflowTracker(const TrackConfig& config);

// A tracker by its name in Trackers(). Errors name what it lacks.
absl::StatusOr<std::unique_ptr<Tracker>> MakeTracker(const std::string& name,
                                                     const TrackConfig& config);

}  // namespace macaw::cli
