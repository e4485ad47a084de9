#include "training/torch/eager_trainer.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/buffer.h"
#include "core/status.h"
#include "models/one_thread.h"
#include "training/api/pass_rows.h"
#include "training/sequences.h"
#include "training/stage_inputs.h"
#include "training/torch/device.h"
#include "training/torch/precision.h"

namespace macaw::training {
namespace {

// Calls f and turns LibTorch's exceptions into errors. On cores they come of what it was given,
// such as a token that a scripted module does not know, and would come again.
template <typename F>
auto Caught(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const c10::Error& error) {
    const std::string words = absl::StrCat("LibTorch: ", error.what_without_backtrace());
    // The host's allocator has no exception of its own.
    const bool memory = absl::StrContains(words, "can't allocate memory") ||
                        dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
    return memory ? absl::ResourceExhaustedError(words) : absl::InvalidArgumentError(words);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory: use a smaller batch or fewer slots");
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

// The parts of a batch of so many rows (local.micro_batch), of sizes that differ by one at most.
// Batch norm needs two rows in each.
size_t PartsOf(size_t rows, size_t most, bool norms) {
  if (most == 0 || rows <= most) return 1;
  const size_t parts = (rows + most - 1) / most;
  return norms ? std::max<size_t>(1, std::min(parts, rows / 2)) : parts;
}

// Rows per pass over all of a client's rows.
uint64_t PassRows(const LocalConfig& local) {
  return local.micro_batch > 0 ? std::min<uint64_t>(kPassRows, local.micro_batch) : kPassRows;
}

// A list of layers says what it takes and returns. A scripted module has to fit the data and the
// task, which its first batch shows.
models::ModelSpec SpecFor(const TrainerSetup& setup) {
  models::ModelSpec spec = setup.spec;
  if (!spec.is_script()) return spec;
  spec.script_takes_tokens = setup.feature_type == data::FeatureType::kI32;
  const bool sequences = setup.task == TaskKind::kNextToken && spec.input_shape.size() == 1;
  spec.positions = sequences ? spec.input_shape[0] : 0;
  return spec;
}

}  // namespace

struct EagerTrainer::StageRun {
  const Stage& stage;
  const uint32_t index;
  const ClientTask& task;
  const data::Rows& rows;
  Objective objective;
  ConstVectorView start;
  ConstVectorView anchor;
  ConstVectorView v;                   // empty: no correction
  at::Tensor device_anchor, device_v;  // on a device
  std::vector<std::vector<at::Tensor>> references = {};
  Pieces pieces;
  StreamKey key;  // seed, round, phase, client

  StageLoss loss() const {
    return {.objective = &objective,
            .hooks = stage.hooks.get(),
            .references = &references,
            .trainable = stage.trainable.get()};
  }
  // `part`: of the step's batch (local.micro_batch).
  StreamKey Dropout(uint64_t step, uint64_t part = 0) const {
    StreamKey dropout = key;
    dropout.purpose = Purpose::kDropout;
    dropout.extra = (part << 48) | (static_cast<uint64_t>(index) << 32) | step;
    return dropout;
  }
};

absl::StatusOr<std::unique_ptr<EagerTrainer>> EagerTrainer::Make(const TrainerSetup& setup) {
  if (setup.spec.layout == nullptr || setup.spec.layout->dtype() != setup.dtype) {
    return absl::InvalidArgumentError("the model was built for another dtype than the run's");
  }
  MACAW_RETURN_IF_ERROR(CheckSequences(SpecFor(setup), setup.feature_type, setup.task));
  MACAW_ASSIGN_OR_RETURN(Objective objective,
                         Objective::Make(setup.task, setup.spec.outputs, setup.local));
  models::UseOneThread();
  MACAW_RETURN_IF_ERROR(CheckPrecision(setup));
  MACAW_ASSIGN_OR_RETURN(const at::Device device, OpenDevice(setup));
  SetPrecision(setup.local.precision, device);
  using Made = absl::StatusOr<std::unique_ptr<EagerTrainer>>;
  return Caught([&]() -> Made {
    const std::optional<c10::Stream> stream = OwnStream(device);
    const c10::OptionalStreamGuard on_stream(stream);
    return std::unique_ptr<EagerTrainer>(
        new EagerTrainer(setup, std::move(objective), device, stream));
  });
}

EagerTrainer::EagerTrainer(const TrainerSetup& setup, Objective objective, at::Device device,
                           std::optional<c10::Stream> stream)
    : task_(setup.task),
      device_(device),
      stream_(stream),
      feature_type_(setup.feature_type),
      network_(SpecFor(setup), device, setup.local.checkpoint),
      gather_(setup.feature_type, setup.spec.input_shape, setup.transform, setup.dtype),
      plain_(objective.Plain(setup.CountedClasses())),
      batch_(network_, gather_, setup.task, setup.dtype, setup.work, device,
             setup.local.precision == "bf16"),
      replica_(setup.spec.layout, device),
      optimizer_(setup.spec.layout),
      references_(network_.spec(), device),
      kept_{.layout = setup.spec.layout, .ends = {}} {}

absl::StatusOr<std::vector<StageOutcome>> EagerTrainer::Run(const LocalPlan& plan,
                                                            const ClientTask& task) {
  models::UseOneThread();
  const c10::OptionalStreamGuard on_stream(stream_);
  return RunStages(
      plan, task.client,
      [&](const Stage& stage, const std::vector<StageOutcome>& before) {
        return Caught([&] { return RunStage(stage, before.size(), before, task); });
      },
      &kept_);  // all stages use one replica
}

absl::StatusOr<StageOutcome> EagerTrainer::RunStage(const Stage& stage, size_t index,
                                                    const std::vector<StageOutcome>& before,
                                                    const ClientTask& task) {
  const AffineCorrection& correction = stage.correction;
  const ParameterLayout& layout = *network_.spec().layout;
  MACAW_RETURN_IF_ERROR(LocalOptimizer::Check(stage.local));
  MACAW_RETURN_IF_ERROR(CheckTrainable(stage, network_.spec()));
  const data::Rows& rows = RowsOf(task, stage.rows);
  MACAW_RETURN_IF_ERROR(CheckRows(rows, feature_type_, gather_.example_elements(), task_));
  MACAW_ASSIGN_OR_RETURN(Objective objective,
                         ObjectiveOf(stage, task_, network_.spec().outputs, rows));
  StageRun run{
      .stage = stage,
      .index = static_cast<uint32_t>(index),
      .task = task,
      .rows = rows,
      .objective = std::move(objective),
      .pieces = TrainablePieces(layout, stage.trainable.get()),
      .key = {.seed = task.seed, .round = task.round, .phase = task.phase, .client = task.client}};
  MACAW_ASSIGN_OR_RETURN(run.start, Resolve(stage.start, before));
  MACAW_RETURN_IF_ERROR(CheckVector(network_.spec(), run.start, "start"));
  run.anchor = run.start;
  if (correction.anchor) {
    MACAW_ASSIGN_OR_RETURN(run.anchor, Resolve(*correction.anchor, before));
    MACAW_RETURN_IF_ERROR(CheckVector(network_.spec(), run.anchor, "anchor"));
  }
  if (!correction.v.empty()) {
    MACAW_ASSIGN_OR_RETURN(run.v, SumOf(correction.v, before, network_.spec(), v_sum_));
  }
  if (!device_.is_cpu()) {
    if (correction.mu != 0) run.device_anchor = FlatTensor(run.anchor).to(device_);
    if (!run.v.empty()) run.device_v = FlatTensor(run.v).to(device_);
  }
  MACAW_ASSIGN_OR_RETURN(run.references, references_.Of(stage, before, task_));
  switch (stage.kind) {
    case StageKind::kTrain:
      return Train(run);
    case StageKind::kGradient:
      return Gradient(run);
    case StageKind::kLoss:
      return Loss(run);
    case StageKind::kStatistics:
      break;  // StatisticsTrainer's
  }
  return absl::InternalError("no kind of stage that a back end knows");
}

absl::StatusOr<StageOutcome> EagerTrainer::Train(const StageRun& run) {
  const LocalConfig& local = run.stage.local;
  order_.Start(
      run.key, run.index, run.rows.size(), local,
      network_.spec().has_buffers() ? BatchOrder::Single::kJoin : BatchOrder::Single::kKeep);
  MACAW_RETURN_IF_ERROR(CheckSteps(local, run.rows.size(), order_.steps()));
  replica_.Load(run.start);
  replica_.SetTrainable(run.stage.trainable.get());
  replica_.ZeroGradient();
  tensor_steps_.Start(*network_.spec().layout, run.stage.trainable.get());
  if (device_.is_cpu()) {
    optimizer_.Start(local, run.stage.correction.mu);
  } else {
    device_optimizer_.Start(local, run.stage.correction.mu, replica_.flat_values());
  }

  StageOutcome outcome{.classes = run.objective.among(),
                       .sums = MetricSums(run.objective.metrics())};
  data::AugmentKey augment{
      .seed = run.task.seed, .round = run.task.round, .client = run.task.client};
  for (auto positions = order_.Next(); !positions.empty(); positions = order_.Next()) {
    augment.epoch = order_.epoch();
    replica_.ForgetReached();
    MACAW_RETURN_IF_ERROR(Differentiate(run, positions, augment, outcome));
    Step(run, run.Dropout(outcome.steps));
    ++outcome.steps;
    outcome.rate_sum += local.lr;
    outcome.examples += positions.size();
  }
  if (run.stage.trainable != nullptr) KeepFrozenBuffers(run);
  batch_.TakeSums(outcome.sums);
  outcome.a_norm1 = device_.is_cpu() ? optimizer_.a_norm1() : device_optimizer_.a_norm1();
  outcome.end = replica_.values();
  return outcome;
}

absl::Status EagerTrainer::Differentiate(const StageRun& run, std::span<const uint32_t> positions,
                                         const data::AugmentKey& augment, StageOutcome& outcome) {
  const size_t count = positions.size();
  const size_t parts = PartsOf(count, run.stage.local.micro_batch, network_.spec().has_buffers());
  Mean mean;
  if (parts > 1) {
    MACAW_ASSIGN_OR_RETURN(mean, MeanOver(run.objective, run.rows, positions));
  }
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * count / parts, end = (part + 1) * count / parts;
    MACAW_RETURN_IF_ERROR(
        batch_.Load(run.rows, positions.subspan(begin, end - begin), &augment, run.objective));
    const StreamKey dropout = run.Dropout(outcome.steps, part);
    batch_.Differentiate(replica_, run.loss(), parts > 1 ? mean : batch_.MeanOf(run.objective),
                         &dropout, models::Statistics::kBatchAndMove, outcome.sums);
  }
  return absl::OkStatus();
}

void EagerTrainer::KeepFrozenBuffers(const StageRun& run) {
  const std::vector<LayoutEntry>& entries = network_.spec().layout->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].group == Group::kBuffer && !(*run.stage.trainable)[i])
      replica_.LoadEntry(i, run.start);
  }
}

void EagerTrainer::Step(const StageRun& run, const StreamKey& dropout) {
  if (device_.is_cpu()) {
    DispatchDType(network_.spec().layout->dtype(),
                  [&]<typename T>(T) { StepOnHost<T>(run, dropout); });
  } else {
    StepOnDevice(run, dropout);
  }
  // A hook may have corrected the gradient of a tensor that takes no step.
  if (!tensor_steps_.all_move()) replica_.ZeroGradient();
}

void EagerTrainer::StepOnDevice(const StageRun& run, const StreamKey& dropout) {
  const bool corrects = run.stage.hooks != nullptr && run.stage.hooks->correct;
  const bool clips_corrected = run.stage.local.clip == "corrected";
  if (corrects) {
    const double clip_norm = run.stage.local.clip_norm;
    if (clip_norm > 0 && !clips_corrected)
      TensorOptimizer::Clip(clip_norm, run.pieces, replica_.flat_gradient());
    batch_.Correct(replica_, run.loss(), &dropout);
  }
  device_optimizer_.StepEach(tensor_steps_.Next(replica_.reached()),
                             {.weights = replica_.flat_values(),
                              .gradient = replica_.flat_gradient(),
                              .anchor = run.device_anchor,
                              .v = run.device_v},
                             /*clipped=*/corrects && !clips_corrected);
}

template <typename T>
void EagerTrainer::StepOnHost(const StageRun& run, const StreamKey& dropout) {
  const std::span<T> gradient = replica_.gradient().As<T>();
  const bool corrects = run.stage.hooks != nullptr && run.stage.hooks->correct;
  const bool clips_corrected = run.stage.local.clip == "corrected";
  if (corrects) {
    const double clip_norm = run.stage.local.clip_norm;
    if (clip_norm > 0 && !clips_corrected) {
      const T scale = static_cast<T>(ClipFactor(clip_norm, NormOf<T>(gradient, run.pieces)));
      for (T& g : gradient) g *= scale;
    }
    batch_.Correct(replica_, run.loss(), &dropout);
  }
  optimizer_.StepEach<T>(tensor_steps_.Next(replica_.reached()),
                         {.weights = replica_.values().As<T>(),
                          .gradient = gradient,
                          .anchor = run.anchor.As<T>(),
                          .v = run.v.empty() ? std::span<const T>() : run.v.As<T>()},
                         /*clipped=*/corrects && !clips_corrected);
}

absl::StatusOr<StageOutcome> EagerTrainer::Gradient(const StageRun& run) {
  MACAW_ASSIGN_OR_RETURN(const Mean mean, MeanOverAll(run.objective, run.rows));
  replica_.Load(run.start);
  replica_.SetTrainable(run.stage.trainable.get());
  replica_.ZeroGradient();
  StageOutcome outcome{.examples = run.rows.size(), .sums = MetricSums(run.objective.metrics())};
  const uint64_t pass = PassRows(run.stage.local);
  for (uint64_t begin = 0; begin < run.rows.size(); begin += pass) {
    const uint64_t end = std::min(begin + pass, run.rows.size());
    MACAW_RETURN_IF_ERROR(batch_.Load(run.rows, Positions(begin, end), nullptr, run.objective));
    // No dropout: the gradient at a point is that of the whole network. Batch norm uses batch
    // statistics, as in training, and its buffers do not move.
    batch_.Differentiate(replica_, run.loss(), mean, /*dropout=*/nullptr,
                         models::Statistics::kBatch, outcome.sums);
  }
  batch_.TakeSums(outcome.sums);
  outcome.end = replica_.gradient();
  return outcome;
}

absl::StatusOr<StageOutcome> EagerTrainer::Loss(const StageRun& run) {
  MACAW_ASSIGN_OR_RETURN(const Mean mean, MeanOverAll(run.objective, run.rows));
  const std::vector<at::Tensor> parameters = Reading(run.start);
  StageOutcome outcome{.examples = run.rows.size(), .sums = MetricSums(run.objective.metrics())};
  const uint64_t pass = PassRows(run.stage.local);
  for (uint64_t begin = 0; begin < run.rows.size(); begin += pass) {
    const uint64_t end = std::min(begin + pass, run.rows.size());
    MACAW_RETURN_IF_ERROR(batch_.Load(run.rows, Positions(begin, end), nullptr, run.objective));
    batch_.Rate(parameters, run.loss(), mean, outcome.sums);
  }
  return outcome;
}

absl::StatusOr<MetricSums> EagerTrainer::Evaluate(ConstVectorView model, const data::Rows& rows,
                                                  uint64_t begin, uint64_t end, uint32_t batch) {
  models::UseOneThread();
  const c10::OptionalStreamGuard on_stream(stream_);
  MACAW_RETURN_IF_ERROR(CheckVector(network_.spec(), model, "model"));
  MACAW_RETURN_IF_ERROR(CheckRows(rows, feature_type_, gather_.example_elements(), task_));
  if (begin > end || end > rows.size() || batch == 0) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation of rows ", begin, " to ", end,
                                                   " of ", rows.size(), " in batches of ", batch));
  }
  const auto evaluate = [&]() -> absl::StatusOr<MetricSums> {
    const std::vector<at::Tensor> parameters = Reading(model);
    MetricSums sums(plain_.metrics());
    for (uint64_t first = begin; first < end; first += batch) {
      const uint64_t last = std::min<uint64_t>(first + batch, end);
      MACAW_RETURN_IF_ERROR(batch_.Load(rows, Positions(first, last), nullptr, plain_));
      batch_.Rate(parameters, {.objective = &plain_}, batch_.MeanOf(plain_), sums);
    }
    return sums;
  };
  absl::StatusOr<MetricSums> sums = Caught(evaluate);
  if (!sums.ok())
    return Annotate(sums.status(), absl::StrCat("evaluation of rows ", begin, " to ", end));
  return sums;
}

absl::StatusOr<Mean> EagerTrainer::MeanOverAll(const Objective& objective,
                                               const data::Rows& rows) const {
  const bool sequences = task_ == TaskKind::kNextToken;
  const double count = static_cast<double>(sequences ? data::TokensOf(rows) : rows.size());
  Mean mean{.divisor = count, .rows = count};
  if (!objective.weighted()) return mean;
  mean.divisor = 0;
  for (uint64_t i = 0; i < rows.size(); ++i) {
    const int64_t label = rows.block.classes[rows.at(i)];
    MACAW_RETURN_IF_ERROR(objective.CheckClasses(std::span(&label, 1)));
    mean.divisor += objective.WeightOf(label);
  }
  return mean;
}

absl::StatusOr<Mean> EagerTrainer::MeanOver(const Objective& objective, const data::Rows& rows,
                                            std::span<const uint32_t> positions) const {
  Mean mean{.divisor = 0, .rows = 0};
  for (const uint32_t position : positions) {
    double weight = 1;
    if (task_ == TaskKind::kNextToken) {
      const int32_t* const lengths = rows.block.lengths;
      weight = lengths != nullptr ? lengths[rows.at(position)]
                                  : static_cast<double>(network_.spec().positions);
    }
    mean.rows += weight;
    if (objective.weighted()) {
      const int64_t label = rows.block.classes[rows.at(position)];
      MACAW_RETURN_IF_ERROR(objective.CheckClasses(std::span(&label, 1)));
      weight = objective.WeightOf(label);
    }
    mean.divisor += weight;
  }
  return mean;
}

std::span<const uint32_t> EagerTrainer::Positions(uint64_t begin, uint64_t end) {
  positions_.resize(end - begin);
  std::iota(positions_.begin(), positions_.end(), static_cast<uint32_t>(begin));
  return positions_;
}

std::vector<at::Tensor> EagerTrainer::Reading(ConstVectorView point) {
  if (!device_.is_cpu()) return models::ViewsOf(FlatTensor(point).to(device_), *point.layout);
  if (reinterpret_cast<uintptr_t>(point.bytes.data()) % AlignedBuffer::kAlignment != 0) {
    if (aligned_.empty()) aligned_ = FlatVector(network_.spec().layout);
    std::memcpy(aligned_.view().bytes.data(), point.bytes.data(), point.bytes.size());
    point = aligned_.view();
  }
  return models::ViewsOf(FlatTensor(point), *point.layout);
}

}  // namespace macaw::training
