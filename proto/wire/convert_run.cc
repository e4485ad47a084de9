#include "proto/wire/convert.h"
#include "proto/wire/fields.h"
#include "proto/wire/settings.h"

// The run configuration. Ranges belong to cli/config and to the rooms; here a value must only be
// one that its type can hold.
namespace macaw::wire {
namespace {

static_assert(v1::TASK_KIND_CLASSIFICATION == static_cast<int>(TaskKind::kClassification) + 1);
static_assert(v1::TASK_KIND_NEXT_TOKEN == static_cast<int>(TaskKind::kNextToken) + 1);
static_assert(v1::WEIGHT_POLICY_TOKENS == static_cast<int>(WeightPolicy::kTokens) + 1);
static_assert(v1::DATA_TYPE_F64 == static_cast<int>(DType::kF64) + 1);

v1::ModelConfig ToWire(const ModelConfig& model) {
  v1::ModelConfig m;
  m.set_name(model.name);
  for (const std::string& layer : model.layers) m.add_layers(layer);
  m.set_seed(model.seed);
  m.mutable_input_shape()->Add(model.input_shape.begin(), model.input_shape.end());
  m.set_classes(model.classes);
  m.set_bias(model.bias);
  m.set_buffers(model.buffers);
  m.set_script_digest(model.script_digest);
  for (const std::string& tensor : model.tensors) m.add_tensors(tensor);
  return m;
}

absl::StatusOr<ModelConfig> FromWire(const v1::ModelConfig& m) {
  Fields f;
  ModelConfig model;
  model.name = f.Name("name", m.name());
  for (const std::string& layer : m.layers()) model.layers.push_back(f.Name("layers", layer));
  model.seed = m.seed();
  model.input_shape = f.Shape("input_shape", m.input_shape());
  model.classes = f.Between<int64_t>("classes", m.classes(), 0, int64_t{1} << 40);
  model.bias = m.bias();
  model.buffers = f.Name("buffers", m.buffers());
  model.script_digest = f.Name("script_digest", m.script_digest());
  for (const std::string& tensor : m.tensors()) model.tensors.push_back(f.Name("tensors", tensor));
  return f.Done(std::move(model));
}

std::vector<double> ReadNumbers(Fields& f, absl::string_view field,
                                const google::protobuf::RepeatedField<double>& numbers) {
  for (const double x : numbers) f.Finite(field, x);
  return {numbers.begin(), numbers.end()};
}

v1::TransformConfig ToWire(const TransformConfig& transform) {
  v1::TransformConfig m;
  m.set_scale(transform.scale);
  m.mutable_mean()->Add(transform.mean.begin(), transform.mean.end());
  m.mutable_std()->Add(transform.std.begin(), transform.std.end());
  m.set_pad_crop(transform.pad_crop);
  m.set_flip(transform.flip);
  m.set_client_noise(transform.client_noise);
  return m;
}

absl::StatusOr<TransformConfig> FromWire(const v1::TransformConfig& m) {
  Fields f;
  TransformConfig transform;
  transform.scale = f.Finite("scale", m.scale());
  transform.mean = ReadNumbers(f, "mean", m.mean());
  transform.std = ReadNumbers(f, "std", m.std());
  transform.pad_crop = f.Between<int64_t>("pad_crop", m.pad_crop(), 0, 1 << 20);
  transform.flip = m.flip();
  transform.client_noise = f.NotNegative("client_noise", m.client_noise());
  return f.Done(std::move(transform));
}

v1::Schedule ToWire(const Schedule& schedule) {
  v1::Schedule m;
  m.set_kind(schedule.kind);
  m.set_gamma(schedule.gamma);
  m.set_every(schedule.every);
  m.set_rounds(schedule.rounds);
  m.set_floor(schedule.floor);
  m.set_warmup_rounds(schedule.warmup_rounds);
  return m;
}

absl::StatusOr<Schedule> FromWire(const v1::Schedule& m) {
  Fields f;
  Schedule schedule;
  schedule.kind = f.Name("kind", m.kind());
  schedule.gamma = f.Finite("gamma", m.gamma());
  schedule.every = m.every();
  schedule.rounds = m.rounds();
  schedule.floor = f.Finite("floor", m.floor());
  schedule.warmup_rounds = m.warmup_rounds();
  return f.Done(std::move(schedule));
}

v1::LocalConfig ToWire(const LocalConfig& local) {
  v1::LocalConfig m;
  m.set_epochs(local.epochs);
  m.set_steps(local.steps);
  m.set_batch_size(local.batch_size);
  m.set_optimizer(local.optimizer);
  m.set_lr(local.lr);
  *m.mutable_lr_schedule() = ToWire(local.lr_schedule);
  m.set_momentum(local.momentum);
  m.set_nesterov(local.nesterov);
  m.set_weight_decay(local.weight_decay);
  m.set_clip_norm(local.clip_norm);
  m.set_clip(local.clip);
  m.mutable_class_weights()->Add(local.class_weights.begin(), local.class_weights.end());
  m.set_label_smoothing(local.label_smoothing);
  m.set_drop_last(local.drop_last);
  m.set_shuffle(local.shuffle);
  m.set_trainer(local.trainer);
  m.set_beta1(local.beta1);
  m.set_beta2(local.beta2);
  m.set_epsilon(local.epsilon);
  return m;
}

absl::StatusOr<LocalConfig> FromWire(const v1::LocalConfig& m) {
  Fields f;
  LocalConfig local;
  local.epochs = m.epochs();
  local.steps = m.steps();
  local.batch_size = m.batch_size();
  local.optimizer = f.Name("optimizer", m.optimizer());
  local.lr = f.Finite("lr", m.lr());
  local.lr_schedule = f.Sub("lr_schedule", FromWire(m.lr_schedule()));
  local.momentum = f.Finite("momentum", m.momentum());
  local.nesterov = m.nesterov();
  local.weight_decay = f.Finite("weight_decay", m.weight_decay());
  local.clip_norm = f.Finite("clip_norm", m.clip_norm());
  local.clip = f.Name("clip", m.clip());
  local.class_weights = ReadNumbers(f, "class_weights", m.class_weights());
  local.label_smoothing = f.Finite("label_smoothing", m.label_smoothing());
  local.drop_last = m.drop_last();
  local.shuffle = m.shuffle();
  local.trainer = f.Name("trainer", m.trainer());
  local.beta1 = f.Finite("beta1", m.beta1());
  local.beta2 = f.Finite("beta2", m.beta2());
  local.epsilon = f.Finite("epsilon", m.epsilon());
  return f.Done(std::move(local));
}

v1::ParameterValue ToWire(const ParameterValue& value) {
  struct Set {
    v1::ParameterValue operator()(bool x) const {
      v1::ParameterValue m;
      m.set_boolean(x);
      return m;
    }
    v1::ParameterValue operator()(int64_t x) const {
      v1::ParameterValue m;
      m.set_integer(x);
      return m;
    }
    v1::ParameterValue operator()(double x) const {
      v1::ParameterValue m;
      m.set_real(x);
      return m;
    }
    v1::ParameterValue operator()(const std::string& x) const {
      v1::ParameterValue m;
      m.set_text(x);
      return m;
    }
  };
  return std::visit(Set{}, value);
}

absl::StatusOr<ParameterValue> FromWire(const v1::ParameterValue& m) {
  Fields f;
  switch (m.value_case()) {
    case v1::ParameterValue::kBoolean:
      return ParameterValue(m.boolean());
    case v1::ParameterValue::kInteger:
      return ParameterValue(int64_t{m.integer()});
    case v1::ParameterValue::kReal:
      f.Require(!std::isnan(m.real()), "real", "is not a number");  // infinity may mean "no limit"
      return f.Done(ParameterValue(m.real()));
    case v1::ParameterValue::kText:
      return f.Done(ParameterValue(f.Name("text", m.text())));
    case v1::ParameterValue::VALUE_NOT_SET:
      break;
  }
  return Malformed("value", "absent, or of a kind this program does not know");
}

v1::AlgorithmConfig ToWire(const AlgorithmConfig& algorithm) {
  v1::AlgorithmConfig m;
  m.set_name(algorithm.name);
  for (const auto& [key, value] : algorithm.parameters)
    (*m.mutable_parameters())[key] = ToWire(value);
  return m;
}

absl::StatusOr<AlgorithmConfig> FromWire(const v1::AlgorithmConfig& m) {
  Fields f;
  AlgorithmConfig algorithm;
  algorithm.name = f.Name("name", m.name());
  for (const auto& [key, value] : m.parameters()) {
    algorithm.parameters.emplace(
        f.Name("parameters", key),
        f.Sub(absl::StrCat("parameters.", key.substr(0, 64)), FromWire(value)));
  }
  return f.Done(std::move(algorithm));
}

v1::CohortConfig ToWire(const CohortConfig& cohort) {
  v1::CohortConfig m;
  m.set_size(cohort.size);
  m.set_sampling(cohort.sampling);
  m.set_straggler_fraction(cohort.straggler_fraction);
  m.set_straggler_policy(cohort.straggler_policy);
  m.set_availability(cohort.availability);
  m.set_availability_swing(cohort.availability_swing);
  m.set_availability_day(cohort.availability_day);
  m.set_over_selection(cohort.over_selection);
  m.set_device_spread(cohort.device_spread);
  m.set_round_spread(cohort.round_spread);
  m.set_weight(ToWireEnum<v1::WeightPolicy>(cohort.weight));
  m.set_seed(cohort.seed);
  return m;
}

absl::StatusOr<CohortConfig> FromWire(const v1::CohortConfig& m) {
  Fields f;
  CohortConfig cohort;
  cohort.size = m.size();
  cohort.sampling = f.Name("sampling", m.sampling());
  cohort.straggler_fraction = f.Finite("straggler_fraction", m.straggler_fraction());
  cohort.straggler_policy = f.Name("straggler_policy", m.straggler_policy());
  cohort.availability = f.Finite("availability", m.availability());
  cohort.availability_swing = f.Finite("availability_swing", m.availability_swing());
  cohort.availability_day = m.availability_day();
  cohort.over_selection = f.Finite("over_selection", m.over_selection());
  cohort.device_spread = f.Finite("device_spread", m.device_spread());
  cohort.round_spread = f.Finite("round_spread", m.round_spread());
  cohort.weight = f.Enum("weight", m.weight(), WeightPolicy::kTokens);
  cohort.seed = m.seed();
  return f.Done(std::move(cohort));
}

}  // namespace

v1::NumericProfile ToWire(const NumericProfile& profile) {
  v1::NumericProfile m;
  m.set_trainer(profile.trainer);
  m.set_instruction_set(profile.instruction_set);
  m.set_libraries(profile.libraries);
  return m;
}

absl::StatusOr<NumericProfile> FromWire(const v1::NumericProfile& m) {
  Fields f;
  NumericProfile profile;
  profile.trainer = f.Name("trainer", m.trainer());
  profile.instruction_set = f.Name("instruction_set", m.instruction_set());
  profile.libraries = f.Name("libraries", m.libraries());
  return f.Done(std::move(profile));
}

v1::RunConfig ToWire(const RunConfig& run) {
  v1::RunConfig m;
  m.set_name(run.name);
  m.set_seed(run.seed);
  m.set_rounds(run.rounds);
  m.set_dtype(ToWireEnum<v1::DataType>(run.dtype));
  m.set_task(ToWireEnum<v1::TaskKind>(run.task));
  *m.mutable_model() = ToWire(run.model);
  *m.mutable_transform() = ToWire(run.transform);
  *m.mutable_local() = ToWire(run.local);
  *m.mutable_algorithm() = ToWire(run.algorithm);
  *m.mutable_cohort() = ToWire(run.cohort);
  v1::EvaluationConfig& evaluation = *m.mutable_evaluation();
  evaluation.set_every(run.evaluation.every);
  evaluation.set_chunk(run.evaluation.chunk);
  evaluation.set_central(run.evaluation.central);
  evaluation.set_clients(run.evaluation.clients);
  evaluation.set_train(run.evaluation.train);
  m.set_contribution_bound(run.contribution_bound);
  m.set_clients(run.clients);
  m.set_train_clients(run.train_clients);
  m.set_train_examples(run.train_examples);
  m.set_train_tokens(run.train_tokens);
  m.mutable_plugins()->Add(run.plugins.begin(), run.plugins.end());
  return m;
}

absl::StatusOr<RunConfig> FromWire(const v1::RunConfig& m) {
  Fields f;
  f.Require(!HasUnknownFields(m), "run",
            "sets what this release does not know; use the other side's release");
  RunConfig run;
  run.name = f.Name("name", m.name());
  run.seed = m.seed();
  run.rounds = m.rounds();
  run.dtype = f.Enum("dtype", m.dtype(), DType::kF64);
  run.task = f.Enum("task", m.task(), TaskKind::kNextToken);
  run.model = f.Sub("model", FromWire(m.model()));
  run.transform = f.Sub("transform", FromWire(m.transform()));
  run.local = f.Sub("local", FromWire(m.local()));
  run.algorithm = f.Sub("algorithm", FromWire(m.algorithm()));
  run.cohort = f.Sub("cohort", FromWire(m.cohort()));
  run.evaluation.every = m.evaluation().every();
  run.evaluation.chunk = m.evaluation().chunk();
  run.evaluation.central = m.evaluation().central();
  run.evaluation.clients = m.evaluation().clients();
  run.evaluation.train = m.evaluation().train();
  run.clients = m.clients();
  run.train_clients = m.train_clients();
  run.train_examples = m.train_examples();
  run.train_tokens = m.train_tokens();
  for (const std::string& plugin : m.plugins()) run.plugins.push_back(f.Name("plugins", plugin));
  run.contribution_bound = f.Finite("contribution_bound", m.contribution_bound());
  return f.Done(std::move(run));
}

}  // namespace macaw::wire
