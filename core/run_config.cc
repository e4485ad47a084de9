#include "core/run_config.h"

#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw {
namespace {

// Shortest text that parses back to the same number.
std::string Text(double value) {
  char buffer[32];
  for (int digits = 15; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof(buffer), "%.*g", digits, value);
    if (std::stod(buffer) == value) break;
  }
  return buffer;
}
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(const std::string& value) { return value; }
template <typename T>
requires std::is_integral_v<T> std::string Text(T value) { return absl::StrCat(value); }
template <typename T>
std::string Text(const std::vector<T>& values) {
  return absl::StrCat(
      "[",
      absl::StrJoin(values, ", ",
                    [](std::string* out, const T& value) { absl::StrAppend(out, Text(value)); }),
      "]");
}

// The fingerprint under construction.
class Settings {
 public:
  template <typename T>
  void Add(const std::string& key, const T& value) {
    settings_[key] = Text(value);
  }

  void AddRun(const RunConfig& run) {
    Add("run.seed", run.seed);
    Add("run.clients", run.clients);
    Add("run.train_clients", TrainClients(run));
    Add("run.train_examples", run.train_examples);
    Add("run.train_tokens", run.train_tokens);
    Add("run.dtype", std::string(Name(run.dtype)));
    Add("run.task", static_cast<int>(run.task));
    Add("run.contribution_bound", run.contribution_bound);
    Add("plugins", absl::StrJoin(run.plugins, ", "));
  }

  void AddModel(const ModelConfig& model) {
    Add("model.name", model.name);
    Add("model.layers", model.layers);
    Add("model.seed", model.seed);
    Add("model.input_shape", model.input_shape);
    Add("model.classes", model.classes);
    Add("model.bias", model.bias);
    Add("model.buffers", model.buffers);
    Add("model.script_digest", model.script_digest);
    Add("model.tensors", model.tensors);
  }

  void AddTransform(const TransformConfig& transform) {
    Add("data.scale", transform.scale);
    Add("data.mean", transform.mean);
    Add("data.std", transform.std);
    Add("data.pad_crop", transform.pad_crop);
    Add("data.flip", transform.flip);
    Add("data.client_noise", transform.client_noise);
  }

  void AddLocal(const LocalConfig& local) {
    Add("local.epochs", local.epochs);
    Add("local.steps", local.steps);
    Add("local.batch_size", local.batch_size);
    Add("local.optimizer", local.optimizer);
    Add("local.lr", local.lr);
    const Schedule& schedule = local.lr_schedule;
    Add("local.lr_schedule",
        absl::StrCat(schedule.kind, " gamma ", Text(schedule.gamma), " every ", schedule.every,
                     " rounds ", schedule.rounds, " floor ", Text(schedule.floor), " warmup ",
                     schedule.warmup_rounds));
    Add("local.momentum", local.momentum);
    Add("local.nesterov", local.nesterov);
    Add("local.beta1", local.beta1);
    Add("local.beta2", local.beta2);
    Add("local.epsilon", local.epsilon);
    Add("local.weight_decay", local.weight_decay);
    Add("local.clip_norm", local.clip_norm);
    Add("local.clip", local.clip);
    Add("local.class_weights", local.class_weights);
    Add("local.label_smoothing", local.label_smoothing);
    Add("local.drop_last", local.drop_last);
    Add("local.shuffle", local.shuffle);
    Add("local.trainer", local.trainer);
  }

  void AddAlgorithm(const AlgorithmConfig& algorithm) {
    Add("algorithm.name", algorithm.name);
    for (const auto& [name, value] : algorithm.parameters) {
      const std::string key = absl::StrCat("algorithm.", algorithm.name, ".", name);
      std::visit([&](const auto& v) { Add(key, v); }, value);
    }
  }

  void AddCohort(const CohortConfig& cohort) {
    Add("cohort.size", cohort.size);
    Add("cohort.sampling", cohort.sampling);
    Add("cohort.weight", static_cast<int>(cohort.weight));
    Add("cohort.seed", cohort.seed);
    Add("cohort.straggler_fraction", cohort.straggler_fraction);
    Add("cohort.straggler_policy", cohort.straggler_policy);
    if (cohort.sampling == "available") {
      Add("cohort.availability", cohort.availability);
      Add("cohort.availability_swing", cohort.availability_swing);
      Add("cohort.availability_day", cohort.availability_day);
    }
    if (cohort.over_selection != 1) {
      Add("cohort.over_selection", cohort.over_selection);
      Add("cohort.device_spread", cohort.device_spread);
      Add("cohort.round_spread", cohort.round_spread);
    }
  }

  void AddEvaluation(const EvaluationConfig& evaluation) {
    Add("evaluation.every", evaluation.every);
    Add("evaluation.chunk", evaluation.chunk);
    Add("evaluation.central", evaluation.central);
    Add("evaluation.clients", evaluation.clients);
    Add("evaluation.train", evaluation.train);
  }

  std::map<std::string, std::string> Take() && { return std::move(settings_); }

 private:
  std::map<std::string, std::string> settings_;
};

}  // namespace

std::map<std::string, std::string> Describe(const RunConfig& run) {
  Settings settings;
  settings.AddRun(run);
  settings.AddModel(run.model);
  settings.AddTransform(run.transform);
  settings.AddLocal(run.local);
  settings.AddAlgorithm(run.algorithm);
  settings.AddCohort(run.cohort);
  settings.AddEvaluation(run.evaluation);
  return std::move(settings).Take();
}

}  // namespace macaw
