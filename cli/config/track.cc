#include "cli/config/track.h"

namespace macaw::cli {

const std::vector<std::string>& Trackers() {
  static const auto* const names =
      new std::vector<std::string>{"tensorboard", "mlflow", "wandb", "csv"};
  return *names;
}

settings::Section<TrackConfig> TrackSection() {
  using T = TrackConfig;
  settings::Section<T> f;
  f.AddWords("run.track", &T::to, Trackers(),
             "who else gets each row of metrics.jsonl: files for TensorBoard, for `wandb sync` and "
             "for pandas in the run's folder; an MLflow server");
  f.Add("run.mlflow.uri", &T::mlflow_uri,
        "http://host:port of the MLflow server; default: MLFLOW_TRACKING_URI");
  f.Add("run.mlflow.experiment", &T::mlflow_experiment, "the experiment of the MLflow run");
  f.Add("run.wandb.project", &T::wandb_project, "the project that `wandb sync` puts the run into");
  for (settings::Field<T>& field : f.fields()) field.role = settings::Role::kCompute;
  return f;
}

}  // namespace macaw::cli
