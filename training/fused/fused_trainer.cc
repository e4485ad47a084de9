#include "training/fused/fused_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "training/api/pass_rows.h"
#include "training/stage_inputs.h"

namespace macaw::training::fused {
namespace {

bool HasDropout(const models::ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const models::Layer& layer) {
    return std::holds_alternative<models::Dropout>(layer);
  });
}

bool IsKnown(TaskKind task) {
  return task == TaskKind::kClassification || task == TaskKind::kBinary ||
         task == TaskKind::kRegression || task == TaskKind::kReconstruction;
}

// Rows per pass for a batch of n. Larger batches are processed in several passes whose gradients
// are added, which affects the bits of large batches and gradient stages. Dropout draws masks layer
// by layer, so it needs the batch in one piece.
size_t PassRows(bool dropout, size_t n) { return dropout ? n : kPassRows; }

AlignedBuffer Floats(size_t count) { return AlignedBuffer(count * sizeof(float)); }

}  // namespace

struct FusedTrainer::StageRun {
  const Stage& stage;
  const uint32_t index;
  const data::Rows& rows;
  const Objective objective;
  const SoftmaxRule rule;
  ConstVectorView start;
  StreamKey key;                        // seed, round, phase, client
  std::vector<Pieces> moves;            // per block
  std::vector<uint32_t> moved_tensors;  // per block, as bits
  std::vector<bool> steps;              // per block: whether it takes its steps itself
  size_t lowest = 0;                    // the first block in which something moves

  SgdRule sgd() const { return SgdRule::Of(stage.local, stage.correction.mu); }
  // Whether a step is just w ← w − lr·(g + v + decay·w).
  bool is_plain() const {
    const LocalConfig& local = stage.local;
    return stage.kind == StageKind::kTrain && local.clip_norm == 0 && local.momentum == 0 &&
           stage.correction.mu == 0;
  }
};

absl::Status Supports(const TrainerSetup& setup) {
  if (setup.dtype != DType::kF32) return absl::UnimplementedError("it computes in float32 only");
  if (setup.feature_type == data::FeatureType::kI32) {
    return absl::UnimplementedError("it does not take tokens");
  }
  if (!IsKnown(setup.task)) return absl::UnimplementedError("it does not know the run's task");
  if (setup.local.optimizer != "sgd") {
    return absl::UnimplementedError(
        absl::StrCat("it has no optimizer \"", setup.local.optimizer, "\""));
  }
  if (setup.local.precision != "full")
    return absl::UnimplementedError("it computes in full precision only (local.precision)");
  if (setup.local.micro_batch > 0)
    return absl::UnimplementedError("it takes whole batches only (local.micro_batch)");
  if (setup.local.checkpoint)
    return absl::UnimplementedError("it computes no activations again (local.checkpoint)");
  if (setup.spec.is_script()) return absl::UnimplementedError("the model is a scripted module");
  if (setup.local.clip_norm > 0 && setup.local.clip != "gradient") {
    return absl::UnimplementedError("it clips the gradient only, not local.clip = \"corrected\"");
  }
  // All instruction sets have the same blocks.
  return Program::Compile(setup.spec, SupportedIsas().front()).status();
}

absl::Status Supports(const Stage& stage) {
  if (stage.hooks != nullptr) return absl::UnimplementedError("a stage has hooks");
  if (stage.kind == StageKind::kStatistics)
    return absl::UnimplementedError("a stage is of statistics");
  if (stage.local.optimizer != "sgd") {
    return absl::UnimplementedError(
        absl::StrCat("a stage asks for optimizer \"", stage.local.optimizer, "\""));
  }
  if (stage.kind == StageKind::kTrain && stage.local.clip_norm > 0 &&
      stage.local.clip != "gradient") {
    return absl::UnimplementedError(absl::StrCat("a stage asks for clip = \"", stage.local.clip,
                                                 "\", and it clips the gradient only"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FusedTrainer>> FusedTrainer::Make(const TrainerSetup& setup,
                                                                 Isa isa) {
  if (setup.spec.layout == nullptr || setup.spec.layout->dtype() != setup.dtype) {
    return absl::InvalidArgumentError("the model was built for another dtype than the run's");
  }
  MACAW_RETURN_IF_ERROR(Supports(setup));
  MACAW_ASSIGN_OR_RETURN(Objective objective,
                         Objective::Make(setup.task, setup.spec.outputs, setup.local));
  MACAW_ASSIGN_OR_RETURN(Program program, Program::Compile(setup.spec, isa));
  return std::unique_ptr<FusedTrainer>(
      new FusedTrainer(setup, isa, std::move(program), std::move(objective)));
}

FusedTrainer::FusedTrainer(const TrainerSetup& setup, Isa isa, Program program, Objective objective)
    : task_(setup.task),
      spec_(setup.spec),
      program_(std::move(program)),
      kernels_(KernelsOf(isa)),
      plain_(objective.Plain(setup.CountedClasses())),
      has_dropout_(HasDropout(setup.spec)),
      feed_(setup, kernels_, program_.in()),
      tape_(program_),
      weights_(Floats(program_.packed_size())),
      gradient_(Floats(program_.packed_size())) {}

absl::StatusOr<std::vector<StageOutcome>> FusedTrainer::Run(const LocalPlan& plan,
                                                            const ClientTask& task) {
  return RunStages(plan, task.client,
                   [&](const Stage& stage,
                       const std::vector<StageOutcome>& before) -> absl::StatusOr<StageOutcome> {
                     const size_t i = before.size();
                     if (const absl::Status status = Supports(stage); !status.ok())
                       return CannotDo("fused", status, i < plan.stages.size());
                     if (ends_.size() <= i) ends_.resize(i + 1);
                     return RunStage(stage, i, before, task);
                   });
}

absl::StatusOr<StageOutcome> FusedTrainer::RunStage(const Stage& stage, size_t index,
                                                    const std::vector<StageOutcome>& before,
                                                    const ClientTask& task) {
  const AffineCorrection& correction = stage.correction;
  MACAW_RETURN_IF_ERROR(CheckTrainable(stage, spec_));
  const data::Rows& rows = RowsOf(task, stage.rows);
  MACAW_RETURN_IF_ERROR(feed_.Check(rows));
  MACAW_ASSIGN_OR_RETURN(Objective objective, ObjectiveOf(stage, task_, spec_.outputs, rows));
  StageRun run{
      .stage = stage,
      .index = static_cast<uint32_t>(index),
      .rows = rows,
      .objective = std::move(objective),
      .rule = RuleOf(stage.local),
      .key = {.seed = task.seed, .round = task.round, .phase = task.phase, .client = task.client}};
  MACAW_ASSIGN_OR_RETURN(run.start, Resolve(stage.start, before));
  MACAW_RETURN_IF_ERROR(CheckVector(spec_, run.start, "start"));
  program_.Pack(run.start, weights_.As<float>());
  if (stage.kind == StageKind::kLoss) return Loss(run);

  const size_t blocks = program_.steps().size();
  run.lowest = blocks;
  for (size_t i = 0; i < blocks; ++i) {
    run.moves.push_back(program_.TrainablePieces(i, stage.trainable.get()));
    run.moved_tensors.push_back(program_.TrainableTensors(i, stage.trainable.get()));
    if (!run.moves[i].empty()) run.lowest = std::min(run.lowest, i);
    const Program::Step& step = program_.steps()[i];
    const Pieces whole = {{step.offset, step.offset + step.size}};
    run.steps.push_back(run.is_plain() && step.block->can_step() && run.moves[i] == whole);
  }
  if (ends_[index].empty()) ends_[index] = FlatVector(spec_.layout);
  if (stage.kind == StageKind::kGradient) return Gradient(run);

  ConstVectorView anchor = run.start;
  if (correction.anchor) {
    MACAW_ASSIGN_OR_RETURN(anchor, Resolve(*correction.anchor, before));
    MACAW_RETURN_IF_ERROR(CheckVector(spec_, anchor, "anchor"));
  }
  if (correction.mu != 0) {
    if (anchor_.size() == 0) anchor_ = Floats(program_.packed_size());
    program_.Pack(anchor, anchor_.As<float>());
  }
  if (!correction.v.empty()) {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView v, SumOf(correction.v, before, spec_, v_sum_));
    if (v_.size() == 0) v_ = Floats(program_.packed_size());
    program_.Pack(v, v_.As<float>());
  }
  return Train(run, task);
}

absl::StatusOr<StageOutcome> FusedTrainer::Train(const StageRun& run, const ClientTask& task) {
  const LocalConfig& local = run.stage.local;
  order_.Start(run.key, run.index, run.rows.size(), local);
  MACAW_RETURN_IF_ERROR(CheckSteps(local, run.rows.size(), order_.steps()));
  if (local.momentum != 0) {
    if (momentum_.size() == 0) momentum_ = Floats(program_.packed_size());
    std::memset(momentum_.bytes().data(), 0, momentum_.size());
  }
  StageOutcome outcome{.classes = run.objective.among(),
                       .sums = MetricSums(run.objective.metrics())};
  StepNorm step_norm(run.sgd());
  data::AugmentKey augment{.seed = task.seed, .round = task.round, .client = task.client};
  std::span<const uint32_t> next = order_.Next();
  while (!next.empty()) {
    batch_.assign(next.begin(), next.end());
    augment.epoch = order_.epoch();
    next = order_.Next();
    feed_.Expect(run.rows, next);
    MACAW_RETURN_IF_ERROR(Step(run, batch_, augment, outcome.steps, outcome.sums));
    ++outcome.steps;
    outcome.rate_sum += local.lr;
    outcome.examples += batch_.size();
    step_norm.Step();
  }
  outcome.a_norm1 = step_norm.value();
  outcome.end = UnpackEnd(run.index, weights_);
  return outcome;
}

absl::Status FusedTrainer::Step(const StageRun& run, std::span<const uint32_t> positions,
                                const data::AugmentKey& augment, uint64_t step, MetricSums& sums) {
  std::optional<RandomStream> dropout;
  if (has_dropout_) {
    StreamKey key = run.key;
    key.purpose = Purpose::kDropout;
    key.extra = (static_cast<uint64_t>(run.index) << 32) | step;
    dropout.emplace(key);
  }
  const double clip_norm = run.stage.local.clip_norm;
  const bool one_pass = positions.size() <= PassRows(dropout.has_value(), positions.size());
  const auto took_step = [&](size_t block) { return one_pass && run.steps[block]; };
  const auto update_block = [&](size_t block) {
    if (clip_norm == 0 && !took_step(block)) Update(run, block, 1.0);
  };
  MACAW_RETURN_IF_ERROR(Differentiate(run, positions, &augment, std::nullopt,
                                      dropout ? &*dropout : nullptr, sums, update_block));
  if (clip_norm == 0) return absl::OkStatus();
  double squares = 0;
  for (const Pieces& pieces : run.moves) {
    const double norm = NormOf<float>(gradient_.As<float>(), pieces);
    squares += norm * norm;
  }
  const double scale = ClipFactor(clip_norm, std::sqrt(squares));
  for (size_t block = run.lowest; block < run.moves.size(); ++block) Update(run, block, scale);
  return absl::OkStatus();
}

void FusedTrainer::Update(const StageRun& run, size_t block, double scale) {
  const SgdVectors<float> vectors{
      .weights = weights_.As<float>(),
      .gradient = gradient_.As<float>(),
      .momentum = run.stage.local.momentum != 0 ? momentum_.As<float>() : std::span<float>(),
      .anchor = anchor_.As<float>(),
      .v = run.stage.correction.v.empty() ? std::span<float>() : v_.As<float>()};
  const SgdRule rule = run.sgd();
  for (const auto& [begin, end] : run.moves[block]) kernels_.sgd(rule, scale, begin, end, vectors);
}

template <typename Done>
absl::Status FusedTrainer::Differentiate(const StageRun& run, std::span<const uint32_t> positions,
                                         const data::AugmentKey* augment,
                                         const std::optional<Mean>& mean, RandomStream* dropout,
                                         MetricSums& sums, const Done& done) {
  if (positions.empty()) return absl::OkStatus();  // no rows: total_ holds another client's numbers
  const size_t most = PassRows(dropout != nullptr, positions.size());
  const std::span<float> weights = weights_.As<float>(), gradient = gradient_.As<float>();
  const bool one_pass = positions.size() <= most;
  const PlainStep step{.lr = static_cast<float>(run.stage.local.lr),
                       .weight_decay = static_cast<float>(run.stage.local.weight_decay),
                       .v = run.stage.correction.v.empty() ? nullptr : v_.As<float>().data()};
  const auto wish = [&](size_t block) {
    if (run.moves[block].empty()) return Tape::Wish::kNothing;
    return one_pass && run.steps[block] ? Tape::Wish::kStep : Tape::Wish::kGradient;
  };
  std::optional<Mean> batch_mean = mean;
  if (!one_pass && !mean) {
    MACAW_ASSIGN_OR_RETURN(batch_mean, MeanOver(run.objective, run.rows, positions));
  }
  for (size_t first = 0; first < positions.size(); first += most) {
    const size_t n = std::min(most, positions.size() - first);
    tape_.Reserve(n);
    MACAW_RETURN_IF_ERROR(
        feed_.Load(run.rows, positions.subspan(first, n), augment, run.objective, tape_.in()));
    const float* const logits = tape_.Forward(n, weights, dropout);
    Rate(run.objective, run.rule, batch_mean ? *batch_mean : run.objective.MeanOf(feed_.labels()),
         n, logits, sums);
    tape_.Backward(
        n, weights, gradient, run.lowest, step, wish,
        [&](size_t block) { return run.moved_tensors[block]; },
        [&](size_t block) {
          if (one_pass) done(block);
        });
    if (one_pass) return absl::OkStatus();
    if (total_.size() == 0) total_ = Floats(program_.packed_size());
    if (first == 0) {
      std::copy(gradient.begin(), gradient.end(), total_.As<float>().begin());
    } else {
      kernels_.add(gradient.data(), gradient.size(), total_.As<float>().data());
    }
  }
  std::swap(total_, gradient_);
  for (size_t block = run.moves.size(); block-- > run.lowest;) done(block);
  return absl::OkStatus();
}

absl::StatusOr<StageOutcome> FusedTrainer::Gradient(const StageRun& run) {
  StageOutcome outcome{.examples = run.rows.size(), .sums = MetricSums(run.objective.metrics())};
  const std::span<const uint32_t> all = Positions(0, run.rows.size());
  MACAW_ASSIGN_OR_RETURN(const Mean mean, MeanOver(run.objective, run.rows, all));
  std::memset(gradient_.bytes().data(), 0, gradient_.size());
  // No dropout and augmentation: the gradient at a point is that of the whole network.
  MACAW_RETURN_IF_ERROR(
      Differentiate(run, all, nullptr, mean, nullptr, outcome.sums, [](size_t) {}));
  ClearFrozen(run);
  outcome.end = UnpackEnd(run.index, gradient_);
  return outcome;
}

// Blocks compute the gradients of all their tensors; zero those of the frozen ones.
void FusedTrainer::ClearFrozen(const StageRun& run) {
  const std::span<float> gradient = gradient_.As<float>();
  uint64_t at = 0;
  for (const Pieces& pieces : run.moves) {
    for (const auto& [begin, end] : pieces) {
      std::fill(gradient.begin() + at, gradient.begin() + begin, 0.0f);
      at = end;
    }
  }
  std::fill(gradient.begin() + at, gradient.end(), 0.0f);
}

ConstVectorView FusedTrainer::UnpackEnd(size_t stage, const AlignedBuffer& packed) {
  program_.Unpack(packed.As<float>(), ends_[stage].view());
  return ends_[stage].view();
}

absl::StatusOr<StageOutcome> FusedTrainer::Loss(const StageRun& run) {
  StageOutcome outcome{.examples = run.rows.size(), .sums = MetricSums(run.objective.metrics())};
  MACAW_ASSIGN_OR_RETURN(const Mean mean,
                         MeanOver(run.objective, run.rows, Positions(0, run.rows.size())));
  MACAW_RETURN_IF_ERROR(
      RateRows(run.objective, run.rule, mean, run.rows, 0, run.rows.size(), outcome.sums));
  return outcome;
}

}  // namespace macaw::training::fused
