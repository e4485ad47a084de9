#include "cli/config/complete.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/wrong_key.h"
#include "core/spelling.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/detect.h"
#include "models/script.h"

namespace macaw::cli {
namespace {

// local.lr with adam and adamw where no key gives it: that of PyTorch and of the paper.
constexpr double kAdamsRate = 0.001;

absl::Status CheckAlgorithm(const GivenKeys& given, const Place& file,
                            const algorithms::Registry& registry, const Config& config) {
  const AlgorithmConfig& algorithm = config.run.algorithm;
  const auto named = given.places.find("algorithm.name");
  if (absl::Status status = registry.Find(algorithm.name).status(); !status.ok()) {
    std::vector<std::string> names;
    for (const algorithms::Description* known : registry.All()) names.push_back(known->name);
    return WrongKey(named == given.places.end() ? file : named->second, "algorithm.name",
                    NearestWord(algorithm.name, names), status.message());
  }
  return absl::OkStatus();
}

absl::Status CompleteAlgorithm(const GivenKeys& given, const Place& file,
                               const algorithms::Registry& registry, Config& config) {
  AlgorithmConfig& algorithm = config.run.algorithm;
  bool& together = config.node.partition.train_together;
  if ((*registry.Find(algorithm.name))->pools_clients) {
    const std::string key = "partition.train_together";
    if (given.keys.contains(key) && !together) {
      return At(given.places.at(key),
                absl::StrCat(key, " = false, but algorithm \"", algorithm.name,
                             "\" trains on all clients' rows in one place"));
    }
    together = config.pooled_by_rule = true;
  }
  algorithm.parameters = config.algorithm_tables[algorithm.name];
  absl::StatusOr<AlgorithmConfig> complete = registry.Complete(algorithm);
  if (!complete.ok()) return At(file, complete.status().message());
  algorithm = *std::move(complete);
  config.algorithm_tables[algorithm.name] = algorithm.parameters;
  return absl::OkStatus();
}

absl::Status CheckPrivacy(const GivenKeys& given, const Config& config) {
  if (!config.run.privacy.on()) return absl::OkStatus();
  const std::pair<const char*, const char*> needed[] = {
      {"privacy.clip", "the largest norm of a client's update"},
      {"privacy.noise", "`macaw privacy` says which is enough for an epsilon"}};
  for (const auto& [key, meaning] : needed) {
    if (given.keys.contains(key)) continue;
    return At(given.places.at("privacy.mechanism"),
              absl::StrCat("privacy.mechanism = \"", config.run.privacy.mechanism, "\" needs ", key,
                           ": ", meaning));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FindSource(const GivenKeys& given, const Place& file, Config& config) {
  data::DataOptions& data = config.node.data;
  if (data.source.empty() && !data.path.empty()) {
    const absl::StatusOr<std::string> found = data::DetectSource(data.path, data);
    if (!found.ok()) {
      return WrongKey(given.places.at("data.path"), "data.path", "",
                      absl::StrCat("data.path: ", found.status().message()));
    }
    data.source = *found;
  }
  if (!data.source.empty()) return absl::OkStatus();
  return At(file,
            absl::StrCat("data.source is missing; it is one of ",
                         std::ranges::find(given.fields, "data.source", &Field::key)->expected));
}

void NameModel(Config& config) {
  if (!config.run.model.layers.empty()) config.run.model.name = "layers";
  ModelConfig& model = config.run.model;
  if (model.name.empty() && !model.tensors.empty()) model.name = models::kProgramsName;
  if (!config.node.model_script.empty()) model.name = models::kScriptName;
}

absl::Status CheckNeeded(const GivenKeys& given, const Place& file,
                         const algorithms::Registry& registry, Config& config) {
  if (config.run.model.name.empty() && config.run.model.layers.empty() &&
      config.run.model.tensors.empty() && config.node.model_script.empty()) {
    return At(file,
              "model.name is missing (or model.layers, or model.torchscript); `macaw models` "
              "lists the names");
  }
  NameModel(config);
  if (config.run.cohort.size == 0 && config.run.cohort.fraction == 0) {
    return At(file, "cohort.size or cohort.fraction is missing: how many clients train in a round");
  }
  return CheckAlgorithm(given, file, registry, config);
}

void FollowTheRunsSeed(const GivenKeys& given, Config& config) {
  const Value seed{static_cast<int64_t>(config.run.seed)};
  for (const Field& field : given.fields) {
    if (field.is_seed && !given.keys.contains(field.key)) field.set(config, seed);
  }
}

absl::StatusOr<Config> CompleteConfig(const GivenKeys& given, const Place& file,
                                      const algorithms::Registry& registry, Config config) {
  Schedule& schedule = config.run.local.lr_schedule;
  if ((schedule.kind == "step" || schedule.kind == "exponential") &&
      !given.keys.contains("local.lr_schedule.gamma")) {
    return At(given.places.at("local.lr_schedule.kind"),
              absl::StrCat("a schedule of kind \"", schedule.kind,
                           "\" needs local.lr_schedule.gamma: what the rate is multiplied by"));
  }
  // A run that goes on for more rounds keeps its schedule.
  if (schedule.kind == "cosine" && schedule.rounds == 0) schedule.rounds = config.run.rounds;
  // Adam's step is about as long as the rate, whatever the gradient.
  LocalConfig& local = config.run.local;
  if (local.optimizer != "sgd" && !given.keys.contains("local.lr")) local.lr = kAdamsRate;
  FollowTheRunsSeed(given, config);
  if (config.run.attack.kind != "none" && !given.keys.contains("attack.fraction")) {
    return At(given.places.at("attack.kind"),
              absl::StrCat("attack.kind = \"", config.run.attack.kind,
                           "\" needs attack.fraction: which part of all clients is hostile"));
  }
  MACAW_RETURN_IF_ERROR(CheckPrivacy(given, config));
  EvaluationConfig& evaluation = config.run.evaluation;
  if (!evaluation.test) evaluation.central = evaluation.clients = evaluation.heldout = false;
  MACAW_RETURN_IF_ERROR(CompleteAlgorithm(given, file, registry, config));
  if (const std::string key = KeyOfLongText(config.run); !key.empty()) {
    const auto place = given.places.find(key);
    return WrongKey(place == given.places.end() ? file : place->second, key, "",
                    absl::StrCat(key, " has a text of more than ", kMostSettingBytes,
                                 " bytes, which no node takes: write a shorter one"));
  }
  return config;
}

namespace {

// Why no run's folder has this name; "": it may.
std::string FaultOfFolderName(absl::string_view name) {
  if (name.find('/') != absl::string_view::npos) return "must not contain \"/\"";
  if (absl::c_any_of(name, absl::ascii_iscntrl)) return "must not contain control characters";
  if (name == "." || name == "..") return "must not be \".\" or \"..\", which are other folders";
  // Commands would take the folder for an option.
  return absl::StartsWith(name, "-") ? "must not begin with \"-\"" : "";
}

}  // namespace

absl::Status NameRun(const std::string& file, Config& config) {
  std::string& name = config.run.name;
  if (name.empty()) name = std::filesystem::path(file).stem().string();
  if (name.empty()) name = "run";  // without a file
  if (!IsUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run would be called \"", EscapeToUtf8(name),
                     "\" like the file, which is not UTF-8: set run.name"));
  }
  const std::string fault = FaultOfFolderName(name);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, file.empty() ? "" : ": ", "run.name ", fault,
                                                 " (it names a folder), found \"",
                                                 EscapeToUtf8(name), "\""));
}

}  // namespace macaw::cli
