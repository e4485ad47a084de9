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
  f.AddWords(
      "run.track", &T::to, Trackers(),
      "trackers that get each row of metrics.jsonl: TensorBoard, MLflow and Weights & Biases "
      "by their packages in Python (MACAW_PYTHON); csv is a table, metrics.csv");
  f.Add("run.mlflow.uri", &T::mlflow_uri,
        "the MLflow server, http://host:port, or another tracking URI; default: "
        "MLFLOW_TRACKING_URI, or else MLflow's own");
  f.Add("run.mlflow.experiment", &T::mlflow_experiment, "the experiment of the MLflow run");
  f.Add("run.wandb.project", &T::wandb_project, "the Weights & Biases project of the run");
  for (settings::Field<T>& field : f.fields()) field.role = settings::Role::kCompute;
  return f;
}

}  // namespace macaw::cli
