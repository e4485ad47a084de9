#include "cli/config/resolve.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/around/registry.h"
#include "cli/config/devices.h"
#include "cli/config/key_error.h"
#include "core/cores.h"
#include "core/spelling.h"
#include "core/status.h"
#include "data/foreign_token.h"
#include "data/gather.h"
#include "data/label_map.h"
#include "data/trigger.h"
#include "models/script.h"
#include "proto/fleet/client_table.h"
#include "scheduler/cohort.h"
#include "server/config.h"

namespace macaw::cli {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// A count of the data is what it is, whatever the configuration says.
void TakeCount(Config& config, const char* key, uint64_t& count, uint64_t counted) {
  if (count != 0 && count != counted)
    config.idle.push_back({key, absl::StrCat("beside the data, which say ", counted)});
  count = counted;
}

// What is wrong with patterns of names, beside owners: there, names are numbers.
absl::Status WithOwners(const Config& config, const absl::Status& wrong) {
  if (wrong.ok() || config.node.workers.owners == 0) return wrong;
  return absl::Status(
      wrong.code(),
      absl::StrCat(wrong.message(),
                   "; with workers.owners clients are named by their numbers, \"0\", \"1\", …"));
}

// Clients that are chosen or grouped by name have names that the server takes.
absl::Status CheckNames(const Config& config, const data::Dataset& dataset) {
  const bool chosen = !config.run.cohort.eligible.empty();
  const bool by_name = chosen || !config.run.evaluation.groups.empty();
  if (!by_name || config.node.workers.owners > 0) return absl::OkStatus();
  std::vector<std::string> names;
  for (ClientId client; client.value < dataset.info().clients; ++client.value)
    names.push_back(dataset.ClientName(client));
  return Annotate(fleet::CheckNames(names), chosen ? "cohort.eligible" : "evaluation.groups");
}

// One client that trains on everybody's rows has them in one place.
absl::Status CheckTogether(const Config& config) {
  if (!config.node.partition.train_together) return absl::OkStatus();
  if (config.node.workers.owners == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "algorithm \"", config.run.algorithm.name,
      "\" trains on all clients' rows in one place (partition.train_together): workers.owners must "
      "be 0, since owners keep their rows"));
}

absl::Status ResolveTask(Config& config, const data::DatasetInfo& info) {
  const bool tokens = info.feature_type == data::FeatureType::kI32;
  TaskKind& task = config.run.task;
  if (task == TaskKind::kAuto) {
    task = info.classes == 0 ? TaskKind::kRegression
           : tokens          ? TaskKind::kNextToken
                             : TaskKind::kClassification;
  }
  if (task == TaskKind::kNextToken &&
      (!tokens || info.classes == 0 || info.input_shape.size() != 1)) {
    return absl::InvalidArgumentError(absl::StrCat("run.task = \"next-token\", but the rows of ",
                                                   info.name, " are not sequences of tokens"));
  }
  if (task == TaskKind::kClassification && info.classes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.task = \"classification\", but the labels of ", info.name,
                     " are numbers; use \"regression\" or \"binary\""));
  }
  if (task == TaskKind::kRegression && info.classes > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.task = \"regression\", but the labels of ", info.name, " are ",
                     info.classes, " classes; use \"classification\" or \"binary\", or ",
                     info.name == "csv" ? "data.labels = \"numbers\", which predicts whole numbers"
                                        : "write them as floats, which are numbers to predict"));
  }
  if (task == TaskKind::kReconstruction && (tokens || info.input_shape.size() == 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.task = \"reconstruction\", but the rows of ", info.name,
                     " are sequences; it is of rows of numbers and of images"));
  }
  if (task == TaskKind::kBinary && info.classes > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.task = \"binary\", but ", info.name, " has ", info.classes, " classes"));
  }
  return absl::OkStatus();
}

absl::Status ResolveModel(Config& config, const data::DatasetInfo& info) {
  ModelConfig& model = config.run.model;
  if (model.input_shape.empty()) model.input_shape = info.input_shape;
  if (model.input_shape != info.input_shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.input_shape is ", ShapeText(model.input_shape), ", but an example of ",
                     info.name, " is ", ShapeText(info.input_shape),
                     "; data.input_shape takes its values for another shape"));
  }
  const bool classes =
      config.run.task == TaskKind::kClassification || config.run.task == TaskKind::kNextToken;
  int64_t outputs = 1;
  if (config.run.task == TaskKind::kReconstruction) {
    for (const int64_t extent : info.input_shape) outputs *= extent;
  }
  if (model.classes == 0) model.classes = classes ? info.classes : outputs;
  if (classes ? model.classes < info.classes : model.classes != outputs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.classes is ", model.classes, ", but ", info.name,
        classes ? absl::StrCat(" has ", info.classes, " classes")
                : absl::StrCat(" with task ", Name(config.run.task), " needs ", outputs)));
  }
  const std::vector<double>& weights = config.run.local.class_weights;
  const bool of_numbers =
      config.run.task == TaskKind::kRegression || config.run.task == TaskKind::kReconstruction;
  if (of_numbers && (!weights.empty() || config.run.local.label_smoothing != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        weights.empty() ? "local.label_smoothing" : "local.class_weights",
        " is of classes, and run.task is \"", Name(config.run.task), "\": take it out"));
  }
  if (!weights.empty() &&
      weights.size() != static_cast<size_t>(std::max<int64_t>(2, model.classes))) {
    return absl::InvalidArgumentError(
        absl::StrCat("local.class_weights has ", weights.size(), " numbers, but there are ",
                     std::max<int64_t>(2, model.classes), " classes"));
  }
  return absl::OkStatus();
}

// "0.5", or "[0.4, 0.5, 0.6]" for several channels; long lists are shortened.
std::string NumbersText(const std::vector<double>& numbers) {
  constexpr size_t kShown = 6;
  if (numbers.size() == 1) return absl::StrCat(numbers[0]);
  const auto end = numbers.begin() + static_cast<ptrdiff_t>(std::min(kShown, numbers.size()));
  return absl::StrCat("[", absl::StrJoin(numbers.begin(), end, ", "),
                      numbers.size() > kShown ? ", ..." : "", "]");
}

absl::Status ResolveClassNames(Config& config, const data::DatasetInfo& info) {
  std::vector<std::string>& class_names = config.node.data.class_names;
  MACAW_ASSIGN_OR_RETURN(class_names, data::NamesOfClasses(class_names, info));
  return absl::OkStatus();
}

absl::Status ResolveTransform(Config& config, const data::DatasetInfo& info) {
  TransformConfig& transform = config.run.transform;
  FillNormalise(transform, info);
  const int64_t channels = info.input_shape.empty() ? 1 : info.input_shape.front();
  const auto fits = [&](const std::vector<double>& v) {
    return v.size() <= 1 || v.size() == static_cast<size_t>(channels);
  };
  if (!fits(transform.mean) || !fits(transform.std)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.normalise: mean and std take one number, or one for each of the ",
                     channels, " channels of ", ShapeText(info.input_shape)));
  }
  MACAW_RETURN_IF_ERROR(data::CheckAugment(transform, info.input_shape));
  if (transform.client_noise > 0 && info.feature_type == data::FeatureType::kI32) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.client_noise adds to numbers, and the rows of ", info.name,
                     " are tokens: remove it"));
  }
  MACAW_RETURN_IF_ERROR(data::CheckTrigger(config.run.attack, config.run.task,
                                           LabelClasses(config.run), info.input_shape));
  return data::CheckChanges(transform, config.run.task, LabelClasses(config.run), info.input_shape);
}

absl::Status ResolveCohort(Config& config, const data::DatasetInfo& info,
                           const Drawable& drawable) {
  CohortConfig& cohort = config.run.cohort;
  if (cohort.fraction > 0) {
    const double size = std::round(cohort.fraction * static_cast<double>(TrainClients(config.run)));
    cohort.size = std::max<uint64_t>(1, static_cast<uint64_t>(size));
    cohort.fraction = 0;
  }
  if (cohort.size > info.clients) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cohort.size is ", cohort.size, ", but there are only ", info.clients, " clients"));
  }
  server::RoundRules& round = config.node.server.round;
  MACAW_RETURN_IF_ERROR(server::CheckEnough(cohort, round));
  // A cohort of everybody means everybody who can train, whatever the partition gives.
  cohort.size = std::min(cohort.size, info.train_clients > 0 ? info.train_clients : info.clients);
  round.enough = std::min(round.enough, cohort.size);
  const absl::Status enough = CheckDrawable(config.run, drawable, info.clients);
  MACAW_RETURN_IF_ERROR(cohort.eligible.empty() ? enough : WithOwners(config, enough));
  if (cohort.weight == WeightPolicy::kTokens && info.train_tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat("cohort.weight = \"tokens\", but the rows of ",
                                                   info.name, " are not sequences of tokens"));
  }
  // The same check that the server makes once it knows the clients' sizes.
  const std::vector<uint32_t> rows(TrainClients(config.run), 1);
  const scheduler::Feedback nothing(cohort);
  const scheduler::Feedback* const feedback = LearnsFromRounds(cohort) ? &nothing : nullptr;
  if (config.run.devices.on())
    return scheduler::MakeCandidates(cohort, rows, nullptr, feedback).status();
  return scheduler::MakeSampler(cohort, rows, feedback).status();
}

// "row 7 of client alice": the first row is 0.
std::string PlaceOf(const data::ForeignToken& found, const data::Dataset& dataset) {
  if (found.central) {
    return absl::StrCat("row ", found.row, " of the central ",
                        found.split == data::Split::kTest ? "test" : "validation", " set");
  }
  const char* const split = found.split == data::Split::kTrain  ? "training"
                            : found.split == data::Split::kTest ? "test"
                                                                : "validation";
  return absl::StrCat(split, " row ", found.row, " of client ", dataset.ClientName(found.client));
}

constexpr uint64_t kMostTokens = uint64_t{1} << 28;  // of the data, that are looked at

// A model that predicts tokens has an output for each. The first token of a row is not predicted,
// and negative ones are left to the model.
absl::Status CheckNextTokens(const Config& config, const models::ModelSpec& spec,
                             const data::Dataset& dataset) {
  if (config.run.task != TaskKind::kNextToken) return absl::OkStatus();
  const int64_t outputs = config.run.model.classes;
  if (!spec.is_script() && spec.takes_tokens() && spec.positions == 0) {
    return WithKeyError(
        absl::InvalidArgumentError(absl::StrCat(
            "the task is \"next-token\", as of all rows of tokens unless run.task says otherwise, "
            "and the model has ",
            outputs, outputs == 1 ? " output" : " outputs",
            " for the whole text: to classify texts, set run.task = \"classification\"; to predict "
            "tokens, give it outputs at each position, without \"last\" or \"mean\"")),
        {.key = "run.task"});
  }
  MACAW_ASSIGN_OR_RETURN(const std::optional<data::ForeignToken> found,
                         data::FindForeignToken(dataset, outputs, kMostTokens, /*first=*/1));
  if (!found.has_value() || found->token < 0) return absl::OkStatus();
  const int64_t needed = int64_t{found->token} + 1;
  return WithKeyError(
      absl::InvalidArgumentError(absl::StrCat(
          "the model predicts the tokens 0 to ", outputs - 1, ", and ", PlaceOf(*found, dataset),
          " has token ", found->token, ": give it ", needed, " outputs at each position (",
          config.run.model.name == models::kScriptName
              ? "and an embedding of as many"
              : absl::StrCat("\"embedding ", needed, " D\" and \"linear ", needed, "\""),
          "; data.classes = ", needed, "), or take other tokens")),
      {.key = "model"});
}

// Clients that stand for those who join later.
absl::Status CheckHeldout(const Config& config, const data::DatasetInfo& info) {
  const EvaluationConfig& evaluation = config.run.evaluation;
  const data::DataOptions& data = config.node.data;
  const bool tunes = evaluation.heldout && evaluation.fine_tune.steps > 0;
  if (evaluation.heldout && config.node.partition.train_together) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation.heldout tests clients without training rows apart, and with algorithm \"",
        config.run.algorithm.name,
        "\" (partition.train_together) one client has those of all: set it to false"));
  }
  if (evaluation.heldout && (info.train_clients == 0 || info.train_clients == info.clients)) {
    return absl::InvalidArgumentError(
        "evaluation.heldout tests clients without training rows, and every client has some: set "
        "data.heldout_clients");
  }
  if (tunes && data.heldout_clients > 0 && data.heldout_tuning == 0) {
    return absl::InvalidArgumentError(
        "evaluation.fine_tune has no rows to tune the clients of data.heldout_clients on: set "
        "data.heldout_tuning, the fraction of their rows for that");
  }
  return absl::OkStatus();
}

absl::Status CheckLeftOutOnce(const EvaluationConfig& evaluation, const data::DatasetInfo& info) {
  if (evaluation.leave_one_out == 0 || info.test_examples > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "evaluation.leave_one_out tests models on the central test set, and the data have none: give "
      "them one (data.test_path), or remove the key");
}

absl::Status CheckUnlearned(const EvaluationConfig& evaluation, const data::DatasetInfo& info) {
  for (const uint64_t client : evaluation.unlearn) {
    if (client < info.clients) continue;
    return absl::InvalidArgumentError(absl::StrCat("evaluation.unlearn names client ", client,
                                                   ", and the data have the clients 0 to ",
                                                   info.clients - 1));
  }
  return absl::OkStatus();
}

}  // namespace

void FillNormalise(TransformConfig& transform, const data::DatasetInfo& info) {
  const auto fill = [](std::vector<double>& given, const std::vector<double>& own, double neutral) {
    if (given.empty()) given = own.empty() ? std::vector<double>{neutral} : own;
  };
  if (!transform.scale.has_value()) transform.scale = info.transform.scale.value_or(1.0);
  fill(transform.mean, info.transform.mean, 0.0);
  fill(transform.std, info.transform.std, 1.0);
}

bool IsResolved(const RunPlan& run) {
  return !run.model.input_shape.empty() && run.model.classes > 0 && run.task != TaskKind::kAuto &&
         run.cohort.fraction == 0 && run.transform.scale.has_value() &&
         !run.transform.mean.empty() && !run.transform.std.empty();
}

absl::Status CheckNamesData(const Config& config) {
  if (!config.node.data.source.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "data.source is missing. This file says all that follows from data, so it is a fleet's plan "
      "already: give it to macaw-server --config. `macaw plan` and `macaw simulate` need [data]");
}

std::string NormaliseText(const TransformConfig& transform) {
  const double scale = transform.scale.value_or(1.0);
  const double divisor = 1 / scale;
  const bool divides = std::fabs(divisor) > 1 && std::fabs(divisor - std::round(divisor)) < 1e-9;
  std::string text = scale == 1 ? "x"
                     : divides  ? absl::StrCat("x / ", std::round(divisor))
                                : absl::StrCat("x * ", scale);
  if (TransformConfig{.mean = transform.mean}.normalises())
    absl::StrAppend(&text, " - ", NumbersText(transform.mean));
  if (TransformConfig{.std = transform.std}.normalises()) {
    if (text != "x") text = absl::StrCat("(", text, ")");
    absl::StrAppend(&text, " / ", NumbersText(transform.std));
  }
  return text == "x" ? "x, as stored" : text;
}

absl::Status Resolve(Config& config, const data::Dataset& dataset,
                     const sdk::Catalogue& catalogue) {
  const bool owners = config.node.workers.owners > 0;
  const MatchedBy matched = owners ? MatchedBy::kNumber : MatchedBy::kName;
  MACAW_ASSIGN_OR_RETURN(const Drawable drawable, DrawableOf(config.run, dataset, matched));
  MACAW_RETURN_IF_ERROR(Resolve(config, dataset.info(), drawable, catalogue));
  MACAW_RETURN_IF_ERROR(CheckNames(config, dataset));
  MACAW_RETURN_IF_ERROR(WithOwners(config, CheckGroups(config.run, dataset, matched)));
  // The server looks again, at the rows that its nodes bring.
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* const rule,
                         catalogue.algorithms().Find(config.run.algorithm.name));
  if (rule->trusts || rule->numbers_clients || rule->batches_a_step > 1) {
    MACAW_RETURN_IF_ERROR(algorithms::CheckRows(*rule, algorithms::SetupOf(config.run, nullptr),
                                                DrawableRows(config.run, dataset, matched)));
  }
  MACAW_ASSIGN_OR_RETURN(const virtual_time::Tables tables, ReadDevices(config));
  return CheckDevices(config, tables,
                      {.clients = dataset.info().clients, .name = [&](ClientId client) {
                         return owners ? absl::StrCat(client.value) : dataset.ClientName(client);
                       }});
}

absl::Status Resolve(Config& config, const data::DatasetInfo& info,
                     const sdk::Catalogue& catalogue) {
  return Resolve(
      config, info,
      {.clients = info.train_clients, .examples = info.train_examples, .tokens = info.train_tokens},
      catalogue);
}

absl::Status Resolve(Config& config, const data::DatasetInfo& info, const Drawable& drawable,
                     const sdk::Catalogue& catalogue) {
  TakeCount(config, "run.clients", config.run.clients, info.clients);
  TakeCount(config, "run.train_clients", config.run.train_clients, drawable.clients);
  TakeCount(config, "run.train_examples", config.run.train_examples, drawable.examples);
  TakeCount(config, "run.train_tokens", config.run.train_tokens, drawable.tokens);
  if (config.node.workers.owners > info.clients) {
    return absl::InvalidArgumentError(absl::StrCat("workers.owners is ", config.node.workers.owners,
                                                   ", but the data has ", info.clients,
                                                   " clients"));
  }
  const bool all_own = config.node.workers.owners > 0 && config.node.workers.owners == info.clients;
  if (all_own && info.test_examples == 0 && info.val_examples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers.owners is ", info.clients,
                     ", all clients, and the data has no central test rows, so nothing is left for "
                     "the process beside the owners: take one owner less, or set "
                     "data.test_fraction"));
  }
  MACAW_RETURN_IF_ERROR(CheckTogether(config));
  MACAW_RETURN_IF_ERROR(CheckHeldout(config, info));
  MACAW_RETURN_IF_ERROR(CheckLeftOutOnce(config.run.evaluation, info));
  MACAW_RETURN_IF_ERROR(CheckUnlearned(config.run.evaluation, info));
  MACAW_RETURN_IF_ERROR(ResolveTask(config, info));
  MACAW_RETURN_IF_ERROR(ResolveModel(config, info));
  ModelConfig& model = config.run.model;
  if (const auto own = catalogue.models().find(model.name); own != catalogue.models().end()) {
    MACAW_ASSIGN_OR_RETURN(model.layers, own->second.layers(model.input_shape, model.classes));
    model.name = "layers";
  }
  MACAW_RETURN_IF_ERROR(ResolveTransform(config, info));
  MACAW_RETURN_IF_ERROR(ResolveClassNames(config, info));
  MACAW_RETURN_IF_ERROR(ResolveCohort(config, info, drawable));
  MACAW_RETURN_IF_ERROR(ReadDevices(config).status());
  return absl::OkStatus();
}

absl::StatusOr<models::ModelSpec> SpecOf(const Config& config) {
  absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(config.run.model, config.run.dtype);
  if (spec.ok()) return spec;
  for (const absl::string_view key : {"model.frozen", "model.trained", "model.adapters"}) {
    if (absl::StartsWith(spec.status().message(), key))
      return WithKeyError(spec.status(), {.key = std::string(key)});
  }
  const std::string& name = config.run.model.name;
  std::vector<std::string> names;
  for (const models::NamedModel& model : models::NamedModels()) names.push_back(model.name);
  const bool unknown = config.run.model.layers.empty() && !settings::Contains(names, name);
  return WithKeyError(Annotate(spec.status(), "[model]"),
                      {.key = config.run.model.layers.empty() ? "model.name" : "model.layers",
                       .meant = unknown ? NearestWord(name, names) : ""});
}

absl::Status CheckTokens(const Config& config, const models::ModelSpec& spec,
                         const data::Dataset& dataset) {
  // A scripted module does not say which tokens it knows.
  if (spec.is_script() || !spec.takes_tokens()) return CheckNextTokens(config, spec, dataset);
  const auto& embedding = std::get<models::Embedding>(spec.layers[0]);
  MACAW_ASSIGN_OR_RETURN(const std::optional<data::ForeignToken> found,
                         data::FindForeignToken(dataset, embedding.tokens, kMostTokens));
  if (!found.has_value()) return CheckNextTokens(config, spec, dataset);
  const bool layers = config.run.model.name == "layers";
  const std::string key = layers ? "model.layers" : "model.classes";
  std::string remedy = "tokens are numbers from 0";
  if (found->token >= 0) {
    remedy = layers ? absl::StrCat("write \"embedding ", int64_t{found->token} + 1, " ",
                                   embedding.out, "\"")
                    : absl::StrCat("set model.classes = ", int64_t{found->token} + 1,
                                   ", or write the layers yourself (model.layers)");
  }
  return WithKeyError(
      absl::InvalidArgumentError(absl::StrCat(
          key, ": the model's embedding knows the tokens 0 to ", embedding.tokens - 1, ", and ",
          PlaceOf(*found, dataset), " has token ", found->token, ": ", remedy)),
      {.key = key});
}

uint32_t SlotsPerProcess(const worker::WorkersConfig& workers, uint32_t devices) {
  if (workers.slots > 0) return workers.slots;
  const training::BackendChoice& backend = workers.backend;
  if (backend.name == "torch" && !backend.devices.empty())
    return static_cast<uint32_t>(std::min<size_t>(worker::kMostSlots, backend.devices.size()));
  if (devices > 0) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(worker::kMostSlots, uint64_t{worker::kDeviceSlots} * devices));
  }
  return std::max(1u, UsableCores() / std::max(1u, workers.processes));
}

}  // namespace macaw::cli
