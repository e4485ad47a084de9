#include "core/run_config.h"

#include <cstdio>
#include <string>
#include <type_traits>

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

}  // namespace

std::map<std::string, std::string> Describe(const RunConfig& run) {
  std::map<std::string, std::string> out;
  const auto add = [&](const std::string& key, const auto& value) { out[key] = Text(value); };
  add("run.seed", run.seed);
  add("run.clients", run.clients);
  add("run.train_clients", TrainClients(run));
  add("run.train_examples", run.train_examples);
  add("run.train_tokens", run.train_tokens);
  out["run.dtype"] = std::string(Name(run.dtype));
  add("run.task", static_cast<int>(run.task));
  add("run.contribution_bound", run.contribution_bound);
  add("model.name", run.model.name);
  add("model.layers", run.model.layers);
  add("model.seed", run.model.seed);
  add("model.input_shape", run.model.input_shape);
  add("model.classes", run.model.classes);
  add("model.bias", run.model.bias);
  add("model.buffers", run.model.buffers);
  add("model.script_digest", run.model.script_digest);
  add("model.tensors", run.model.tensors);
  add("data.scale", run.transform.scale);
  add("data.mean", run.transform.mean);
  add("data.std", run.transform.std);
  add("data.pad_crop", run.transform.pad_crop);
  add("data.flip", run.transform.flip);
  add("data.client_noise", run.transform.client_noise);
  const LocalConfig& local = run.local;
  add("local.epochs", local.epochs);
  add("local.steps", local.steps);
  add("local.batch_size", local.batch_size);
  add("local.optimizer", local.optimizer);
  add("local.lr", local.lr);
  add("local.lr_schedule",
      absl::StrCat(local.lr_schedule.kind, " gamma ", Text(local.lr_schedule.gamma), " every ",
                   local.lr_schedule.every, " rounds ", local.lr_schedule.rounds, " floor ",
                   Text(local.lr_schedule.floor), " warmup ", local.lr_schedule.warmup_rounds));
  add("local.momentum", local.momentum);
  add("local.nesterov", local.nesterov);
  add("local.beta1", local.beta1);
  add("local.beta2", local.beta2);
  add("local.epsilon", local.epsilon);
  add("local.weight_decay", local.weight_decay);
  add("local.clip_norm", local.clip_norm);
  add("local.clip", local.clip);
  add("local.class_weights", local.class_weights);
  add("local.label_smoothing", local.label_smoothing);
  add("local.drop_last", local.drop_last);
  add("local.shuffle", local.shuffle);
  add("local.trainer", local.trainer);
  add("plugins", absl::StrJoin(run.plugins, ", "));
  add("algorithm.name", run.algorithm.name);
  for (const auto& [name, value] : run.algorithm.parameters) {
    std::visit(
        [&](const auto& v) { add(absl::StrCat("algorithm.", run.algorithm.name, ".", name), v); },
        value);
  }
  add("cohort.size", run.cohort.size);
  add("cohort.sampling", run.cohort.sampling);
  add("cohort.weight", static_cast<int>(run.cohort.weight));
  add("cohort.seed", run.cohort.seed);
  add("cohort.straggler_fraction", run.cohort.straggler_fraction);
  add("cohort.straggler_policy", run.cohort.straggler_policy);
  if (run.cohort.sampling == "available") {
    add("cohort.availability", run.cohort.availability);
    add("cohort.availability_swing", run.cohort.availability_swing);
    add("cohort.availability_day", run.cohort.availability_day);
  }
  if (run.cohort.over_selection != 1) {
    add("cohort.over_selection", run.cohort.over_selection);
    add("cohort.device_spread", run.cohort.device_spread);
    add("cohort.round_spread", run.cohort.round_spread);
  }
  add("evaluation.every", run.evaluation.every);
  add("evaluation.chunk", run.evaluation.chunk);
  add("evaluation.central", run.evaluation.central);
  add("evaluation.clients", run.evaluation.clients);
  add("evaluation.train", run.evaluation.train);
  return out;
}

}  // namespace macaw
