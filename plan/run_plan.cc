#include "plan/run_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace macaw {
namespace {

using settings::AtLeast;
using settings::Between;
using settings::Field;
using settings::Role;
using settings::Section;
using settings::Setting;
using settings::Value;

const std::vector<std::pair<std::string, TaskKind>>& Tasks() {
  static const auto* const tasks = new std::vector<std::pair<std::string, TaskKind>>{
      {"auto", TaskKind::kAuto},
      {"classification", TaskKind::kClassification},
      {"binary", TaskKind::kBinary},
      {"regression", TaskKind::kRegression},
      {"next-token", TaskKind::kNextToken},
      {"reconstruction", TaskKind::kReconstruction}};
  return *tasks;
}

// The keys of [run] that all nodes agree on.
void AddRun(Section<RunPlan>& f) {
  using R = RunPlan;
  f.Add("run.name", &R::name, "name of the run; default: the file's name").As(Role::kLabel);
  f.Add("run.rounds", &R::rounds, "number of rounds; 0: only the initial model is evaluated",
        AtLeast(0))
      .As(Role::kLength);
  f.Add("run.clients", &R::clients,
        "number of clients; filled in from the data where `macaw simulate` reads it", AtLeast(0))
      .As(Role::kDerived);
  f.Add("run.train_clients", &R::train_clients,
        "clients that can be drawn (with training rows, by cohort.eligible and cohort.min_rows); "
        "0: all; filled in from the data",
        AtLeast(0))
      .As(Role::kDerived);
  f.Add("run.train_examples", &R::train_examples,
        "training rows of the clients that can be drawn, of each at most cohort.max_weight; filled "
        "in from the data",
        AtLeast(0))
      .As(Role::kDerived);
  f.Add("run.train_tokens", &R::train_tokens,
        "training tokens of the clients that can be drawn, for sequences, of each at most "
        "cohort.max_weight; filled in from the data",
        AtLeast(0))
      .As(Role::kDerived);
  f.AddSeed("run.seed", &R::seed, "seed of everything that has no seed of its own")
      .Expecting("an integer >= 0");
  f.AddChoice(
      "run.task", &R::task, Tasks(),
      "task, which decides loss and metrics; auto: next-token for rows of tokens, classification "
      "for labels that are classes, else regression. reconstruction is of autoencoders, whose outputs "
      "are their inputs; it reads no labels");
  f.AddChoice("run.dtype", &R::dtype, {{"float32", DType::kF32}, {"float64", DType::kF64}},
              "number type of models and updates");
  f.Add(
      "run.contribution_bound", &R::contribution_bound,
      "largest |value| of a client's update; an update beyond it is refused. Sums of float32 have "
      "steps of about 1e-15 of it, so a bound far above the updates rounds them away",
      Between(1e-60, 1e60));  // the sums have room for 2^-200 to 2^200
  // The file names shared libraries (`plugins`); nodes compare what is in them.
  Field<R>& plugins = f.Add("run.plugins", &R::plugins, "name, version and digest of each plug-in");
  plugins.As(Role::kDerived).in_file = false;
}

Section<RunPlan> MakePlanSection() {
  using R = RunPlan;
  Section<R> f;
  AddRun(f);
  f.AddSection("data", &R::transform, TransformSection());
  f.AddSection("model", &R::model, ModelSection());
  Section<AlgorithmConfig> algorithm;
  algorithm.Add(
      "name", &AlgorithmConfig::name,
      "name of the rule; `macaw algorithms` lists them; its parameters are in [algorithm.NAME]");
  f.AddSection("algorithm", &R::algorithm, algorithm);
  f.AddSection("attack", &R::attack, AttackSection());
  f.AddSection("privacy", &R::privacy, PrivacySection());
  f.AddSection("update", &R::update, UpdateSection());
  f.AddSection("broadcast", &R::broadcast, BroadcastSection());
  f.AddSection("cohort", &R::cohort, CohortSection());
  f.AddSection("round", &R::asynchronous, AsynchronousSection());
  f.AddSection("devices", &R::devices, DevicesSection());
  f.AddSection("local", &R::local, LocalSection());
  f.AddSection("evaluation", &R::evaluation, EvaluationSection());
  return f;
}

const Field<RunPlan>* Find(const std::string& key) {
  static const auto* const by_key = [] {
    auto* map = new std::map<std::string, const Field<RunPlan>*>;
    for (const Field<RunPlan>& field : PlanSection().fields()) map->emplace(field.key, &field);
    return map;
  }();
  const auto found = by_key->find(key);
  return found == by_key->end() ? nullptr : found->second;
}

std::string PrefixOf(const AlgorithmConfig& algorithm) {
  return absl::StrCat("algorithm.", algorithm.name, ".");
}

}  // namespace

const Section<RunPlan>& PlanSection() {
  static const auto* const section = new Section<RunPlan>(MakePlanSection());
  return *section;
}

std::vector<Setting> SettingsOf(const RunPlan& plan) {
  static const auto* const defaults = new RunPlan;
  std::vector<Setting> settings;
  for (const Field<RunPlan>& field : PlanSection().fields()) {
    std::optional<Value> value = field.get(plan);
    if (value.has_value() && value != field.get(*defaults))
      settings.push_back({field.key, *std::move(value)});
  }
  for (const auto& [name, value] : plan.algorithm.parameters)
    settings.push_back({PrefixOf(plan.algorithm) + name, ToValue(value)});
  return settings;
}

std::string KeyOfLongText(const RunPlan& plan) {
  const auto is_long = [](const Value& value) {
    const auto* const text = value.As<std::string>();
    return text != nullptr && text->size() > kMostSettingBytes;
  };
  for (const Setting& setting : SettingsOf(plan)) {
    const auto* const list = setting.value.As<settings::Array>();
    if (is_long(setting.value) || (list != nullptr && std::ranges::any_of(*list, is_long)))
      return setting.key;
  }
  return "";
}

absl::StatusOr<RunPlan> PlanOf(const std::vector<Setting>& settings) {
  RunPlan plan;
  std::vector<const Setting*> others;
  for (const Setting& setting : settings) {
    const Field<RunPlan>* const field = Find(setting.key);
    if (field == nullptr) {
      others.push_back(&setting);
    } else if (!field->set(plan, setting.value)) {
      return absl::InvalidArgumentError(absl::StrCat(setting.key, " must be ", field->expected,
                                                     ", found ", Describe(setting.value)));
    }
  }
  std::vector<std::string> unknown;
  for (const Setting* const setting : others) {
    absl::string_view name = setting->key;
    const std::optional<ParameterValue> value = ToParameter(setting->value);
    if (absl::ConsumePrefix(&name, PrefixOf(plan.algorithm)) && !name.empty() && value) {
      plan.algorithm.parameters.insert_or_assign(std::string(name), *value);
    } else {
      unknown.push_back(setting->key);
    }
  }
  if (unknown.empty()) return plan;
  return absl::UnimplementedError(
      absl::StrCat("the run sets what this release does not know: ", absl::StrJoin(unknown, ", ")));
}

std::map<std::string, std::string> Fingerprint(const RunPlan& plan) {
  std::map<std::string, std::string> fingerprint;
  for (const Field<RunPlan>& field : PlanSection().fields()) {
    if (field.role != Role::kResult && field.role != Role::kDerived) continue;
    const std::optional<Value> value = field.get(plan);
    if (value.has_value() && field.Applies(plan)) fingerprint[field.key] = ToToml(*value);
  }
  for (const auto& [name, value] : plan.algorithm.parameters)
    fingerprint[PrefixOf(plan.algorithm) + name] = ToToml(ToValue(value));
  return fingerprint;
}

absl::Status CheckForFleet(const RunPlan& plan) {
  if (plan.attack.on()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attack.kind is \"", plan.attack.kind,
                     "\": attackers are simulated, and this is a fleet; take [attack] out"));
  }
  if (plan.privacy.on()) {
    return absl::InvalidArgumentError(
        absl::StrCat("privacy.mechanism is \"", plan.privacy.mechanism,
                     "\": its noise is drawn from run.seed, which every node of a fleet knows and "
                     "could take away again; take [privacy] out"));
  }
  if (plan.devices.on()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "devices.family is \"", plan.devices.family,
        "\": these devices are simulated, and those of a fleet take the time that they "
        "take; take [devices] out"));
  }
  return absl::OkStatus();
}

double TotalWeight(const RunPlan& plan) {
  switch (plan.cohort.weight) {
    case WeightPolicy::kUniform:
      return static_cast<double>(TrainClients(plan));
    case WeightPolicy::kTokens:
      return static_cast<double>(plan.train_tokens);
    case WeightPolicy::kExamples:
      break;
  }
  return static_cast<double>(plan.train_examples);
}

std::string TotalWeightKey(WeightPolicy weight) {
  switch (weight) {
    case WeightPolicy::kUniform:
      return "run.train_clients";
    case WeightPolicy::kTokens:
      return "run.train_tokens";
    case WeightPolicy::kExamples:
      break;
  }
  return "run.train_examples";
}

std::string Name(TaskKind task) {
  for (const auto& [name, kind] : Tasks()) {
    if (kind == task) return name;
  }
  return "";
}

}  // namespace macaw
