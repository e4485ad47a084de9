#include "training/device/stage_work.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "core/status.h"
#include "training/local_optimizer.h"
#include "training/local_sgd.h"
#include "training/sequences.h"

namespace macaw::training::ondevice {
namespace {

std::span<const int32_t> TokensOf(const RunParts& run, const data::Rows& rows, uint64_t i) {
  const std::byte* const row = rows.block.features + rows.at(i) * rows.block.row_bytes;
  return {reinterpret_cast<const int32_t*>(row), run.gather.example_elements()};
}

// Tokens in use.
uint64_t LengthOf(const RunParts& run, const data::Rows& rows, uint64_t i) {
  const int32_t* const lengths = rows.block.lengths;
  return lengths == nullptr ? run.gather.example_elements()
                            : static_cast<uint64_t>(lengths[rows.at(i)]);
}

}  // namespace

absl::StatusOr<RunParts> RunParts::Make(const TrainerSetup& setup) {
  MACAW_ASSIGN_OR_RETURN(CompiledModel model,
                         CompiledModel::Compile(setup.spec, setup.local.batch_size));
  MACAW_ASSIGN_OR_RETURN(Objective objective,
                         Objective::Make(setup.task, setup.spec.outputs, setup.local));
  MACAW_RETURN_IF_ERROR(
      data::BatchGather::Check(setup.feature_type, setup.spec.input_shape, setup.transform));
  return RunParts{
      setup, std::move(model),
      data::BatchGather(setup.feature_type, setup.spec.input_shape, setup.transform, DType::kF32),
      std::move(objective)};
}

uint64_t RunParts::RowBytes(const Turn& turn) const {
  std::array<bool, 3> used{};
  uint64_t bytes = 0;
  for (const Stage& stage : turn.plan->stages) {
    if (!std::exchange(used[static_cast<size_t>(stage.rows)], true))
      bytes += RowsOf(*turn.task, stage.rows).size() * SentBytes();
  }
  return bytes;
}

uint32_t StateVectors(const LocalConfig& local) {
  return AdamRule::IsFor(local) ? 2 : local.momentum != 0 ? 1 : 0;
}

absl::StatusOr<StageWork> StageWork::Make(const RunParts& run, const Stage& stage, ClientTurn& turn,
                                          BatchOrder& order) {
  const models::ModelSpec& spec = run.setup.spec;
  const ClientTask& task = *turn.turn.task;
  MACAW_RETURN_IF_ERROR(LocalOptimizer::Check(stage.local));
  MACAW_RETURN_IF_ERROR(CheckTrainable(stage, spec));
  MACAW_ASSIGN_OR_RETURN(const Objective objective,
                         Objective::Make(run.setup.task, spec.outputs, stage.local));
  const data::Rows& rows = RowsOf(task, stage.rows);
  MACAW_RETURN_IF_ERROR(
      CheckRows(rows, run.setup.feature_type, run.gather.example_elements(), run.setup.task));
  StageWork work(&stage, rows,
                 stage.kind == StageKind::kTrain      ? JobKind::kTrain
                 : stage.kind == StageKind::kGradient ? JobKind::kGradient
                                                      : JobKind::kLoss);
  work.turn_ = &turn;
  work.row_count_ = rows.size();
  work.sends_rows_ = !turn.rows[static_cast<size_t>(stage.rows)].has_value();
  work.outcome_.sums.resize(objective.metrics());
  MACAW_RETURN_IF_ERROR(CheckValues(run, objective, rows, 0, rows.size()));
  MACAW_RETURN_IF_ERROR(work.FindVectors(run, stage, turn));
  const auto index = static_cast<uint32_t>(turn.outcomes.size());
  MACAW_RETURN_IF_ERROR(work.Draw(run, objective, index, task, order));
  MACAW_RETURN_IF_ERROR(work.CheckMemory(run));
  if (stage.trainable != nullptr) {
    work.trainable_.assign(stage.trainable->begin(), stage.trainable->end());
  }
  return work;
}

StageWork StageWork::Rating(const RunParts& run, const data::Rows& rows, uint64_t begin,
                            uint64_t end, ConstVectorView model) {
  StageWork work(nullptr, rows, JobKind::kLoss);
  work.first_row_ = begin;
  work.row_count_ = end - begin;
  work.start_.bytes = model.bytes;
  work.most_rows_ = static_cast<uint32_t>(end - begin);
  work.passed_rows_ = end - begin;
  if (run.setup.CountedClasses().any())
    work.output_count_ = work.row_count_ * static_cast<size_t>(run.setup.spec.outputs);
  JobStep step;
  step.rows = work.most_rows_;
  work.steps_.push_back(step);
  return work;
}

absl::Status StageWork::CheckValues(const RunParts& run, const Objective& objective,
                                    const data::Rows& rows, uint64_t begin, uint64_t end) {
  std::vector<int64_t> labels(1);
  if (run.next_token()) labels.resize(run.gather.example_elements());
  const bool tokens = run.setup.spec.takes_tokens();
  for (uint64_t i = begin; i < end; ++i) {
    if (tokens) MACAW_RETURN_IF_ERROR(CheckTokens(run.setup.spec, TokensOf(run, rows, i)));
    if (rows.block.classes == nullptr) continue;
    const int64_t label = rows.block.classes[rows.at(i)];
    if (run.next_token()) {
      LabelPositions(TokensOf(run, rows, i), LengthOf(run, rows, i), label, labels.data());
    } else {
      labels[0] = label;
    }
    MACAW_RETURN_IF_ERROR(objective.CheckClasses(labels));
  }
  return absl::OkStatus();
}

uint32_t StageWork::pass_rows(const RunParts& run) const {
  if (!run.model.takes_whole_batches || kind_ == JobKind::kLoss) return run.model.pass_rows;
  // The gradient at a point takes the moments of kPassRows rows, as the eager trainer's.
  return kind_ == JobKind::kTrain ? std::max(most_rows_, 1u)
                                  : std::min(kPassRows, run.model.batch_rows);
}

absl::Status StageWork::CheckMemory(const RunParts& run) const {
  if (pass_rows(run) <= run.model.batch_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("batch norm takes the moments of a whole batch, and for a batch of ", most_rows_,
                   " rows the device trainer has no memory: set local.batch_size to ",
                   run.model.batch_rows, " or less"));
}

absl::StatusOr<StageWork::VectorRef> StageWork::Find(const RunParts& run, const Point& point,
                                                     const ClientTurn& turn,
                                                     absl::string_view what) {
  VectorRef ref;
  const auto* end = std::get_if<StageEnd>(&point);  // stays where it is
  if (end != nullptr && end->stage < turn.ends.size()) ref.on_device = turn.ends[end->stage];
  if (ref.on_device != nullptr) return ref;
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView view, Resolve(point, turn.outcomes));
  MACAW_RETURN_IF_ERROR(CheckVector(run.setup.spec, view, what));
  ref.bytes = view.bytes;
  return ref;
}

absl::Status StageWork::FindVectors(const RunParts& run, const Stage& stage,
                                    const ClientTurn& turn) {
  MACAW_ASSIGN_OR_RETURN(start_, Find(run, stage.start, turn, "start"));
  if (kind_ != JobKind::kTrain) return absl::OkStatus();
  const AffineCorrection& correction = stage.correction;
  anchor_ = start_;
  if (correction.anchor.has_value()) {
    MACAW_ASSIGN_OR_RETURN(anchor_, Find(run, *correction.anchor, turn, "anchor"));
  }
  for (size_t i = 0; i < correction.v.size(); ++i) {
    MACAW_ASSIGN_OR_RETURN(VectorRef term, Find(run, correction.v[i].point, turn,
                                                absl::StrCat("correction v[", i, "]")));
    terms_.push_back(term);
    factors_.push_back(correction.v[i].factor);
  }
  return absl::OkStatus();
}

absl::Status StageWork::Draw(const RunParts& run, const Objective& objective, uint32_t index,
                             const ClientTask& task, BatchOrder& order) {
  const data::Rows& rows = *rows_;
  const LocalConfig& local = stage_->local;
  const auto add_step = [&](uint32_t begin, uint64_t count, const auto& row_of) {
    JobStep step;
    step.begin = begin;
    step.rows = static_cast<uint32_t>(count);
    step.mean_rows = static_cast<double>(count);
    if (run.next_token()) {
      step.mean_rows = 0;
      for (uint64_t i = 0; i < count; ++i)
        step.mean_rows += static_cast<double>(LengthOf(run, rows, row_of(i)));
    }
    step.divisor = step.mean_rows;
    if (objective.weighted()) {
      step.divisor = 0;
      for (uint64_t i = 0; i < count; ++i) {
        step.divisor += objective.WeightOf(rows.block.classes[rows.at(row_of(i))]);
      }
    }
    steps_.push_back(step);
    most_rows_ = std::max(most_rows_, step.rows);
    passed_rows_ += count;
  };
  if (kind_ != JobKind::kTrain) {
    outcome_.examples = rows.size();
    if (!rows.empty()) add_step(0, rows.size(), [](uint64_t i) { return i; });
    return absl::OkStatus();
  }
  StreamKey key = {
      .seed = task.seed, .round = task.round, .phase = task.phase, .client = task.client};
  order.Start(key, index, rows.size(), local,
              run.setup.spec.has_buffers() ? BatchOrder::Single::kJoin : BatchOrder::Single::kKeep);
  MACAW_RETURN_IF_ERROR(CheckSteps(local, rows.size(), order.steps()));
  const double mu = stage_->correction.mu;
  const bool adam = AdamRule::IsFor(local);
  StepNorm norm(SgdRule::Of(local, mu));
  data::AugmentKey augment{.seed = task.seed, .round = task.round, .client = task.client};
  key.purpose = Purpose::kDropout;
  for (std::span<const uint32_t> batch = order.Next(); !batch.empty(); batch = order.Next()) {
    add_step(static_cast<uint32_t>(order_.size()), batch.size(),
             [&](uint64_t i) { return batch[i]; });
    order_.insert(order_.end(), batch.begin(), batch.end());
    if (run.model.has_dropout) {
      key.extra = static_cast<uint64_t>(index) << 32 | outcome_.steps;
      const RandomStream::Name name = RandomStream(key).name();
      std::copy_n(name.key, 2, steps_.back().key);
      std::copy_n(name.high, 2, steps_.back().high);
    }
    if (run.moves()) {
      const int64_t pad = run.setup.transform.pad_crop;
      augment.epoch = order.epoch();
      for (const uint32_t position : batch) {
        const data::Move move = data::MoveOf(augment, run.setup.transform, position);
        moves_.push_back(static_cast<MoveCode>(move.down + pad) |
                         static_cast<MoveCode>(move.right + pad) << 15 |
                         static_cast<MoveCode>(move.mirror ? 1 : 0) << 30);
      }
    }
    ++outcome_.steps;
    if (adam) adam_.push_back(AdamNumbersOf<float>(AdamRule::Of(local, mu), outcome_.steps));
    outcome_.rate_sum += local.lr;
    outcome_.examples += batch.size();
    norm.Step();
  }
  // As LocalOptimizer::a_norm1.
  outcome_.a_norm1 = adam ? std::numeric_limits<double>::quiet_NaN() : norm.value();
  return absl::OkStatus();
}

uint32_t StageWork::vectors(const RunParts& run) const {
  if (kind_ != JobKind::kTrain) return 0;
  return (keeps_gradient(run) ? 1 : 0) + StateVectors(stage_->local) + (sums_v() ? 1 : 0);
}

void StageWork::AddTo(const RunParts& run, Upload& upload) {
  places_.steps = upload.Add(std::span<const JobStep>(steps_));
  places_.adam = upload.Add(std::span<const AdamNumbers<float>>(adam_));
  places_.order = upload.Add(std::span<const uint32_t>(order_));
  places_.moves = upload.Add(std::span<const MoveCode>(moves_));
  places_.trainable = upload.Add(std::span<const uint8_t>(trainable_));
  places_.terms = upload.Reserve(terms_.size() * sizeof(JobTerm));
  if (stage_ != nullptr) {
    places_.class_weights = upload.Add(std::span<const double>(stage_->local.class_weights));
  }
  const auto add = [&](VectorRef& vector) {
    if (vector.on_device == nullptr) vector.place = upload.AddShared(vector.bytes);
  };
  add(start_);
  if (kind_ == JobKind::kTrain && stage_->correction.mu != 0) add(anchor_);
  for (VectorRef& term : terms_) add(term);
  if (!sends_rows_) return;
  places_.features = upload.AddUnits(row_count_, run.sent_row_bytes(),
                                     [this, &run](size_t first, size_t count, std::byte* to) {
                                       WriteFeatures(run, first, count, to);
                                     });
  places_.labels = upload.AddUnits(row_count_, run.sent_label_bytes(),
                                   [this, &run](size_t first, size_t count, std::byte* to) {
                                     WriteLabels(run, first, count, to);
                                   });
  if (!sends_lengths()) return;
  places_.lengths = upload.AddUnits(
      row_count_, sizeof(int32_t),
      [this](size_t first, size_t count, std::byte* to) { WriteLengths(first, count, to); });
}

void StageWork::WriteFeatures(const RunParts& run, size_t first, size_t count,
                              std::byte* to) const {
  const data::ExampleBlock& block = rows_->block;
  first += first_row_;
  if (run.prepares_rows()) {
    std::vector<uint32_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<uint32_t>(first));
    run.gather.Gather(*rows_, positions, /*augment=*/nullptr,
                      std::span(to, count * run.sent_row_bytes()), {}, {});
  } else if (rows_->index.empty()) {
    std::memcpy(to, block.features + first * block.row_bytes, count * block.row_bytes);
  } else {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(to + i * block.row_bytes, block.features + rows_->at(first + i) * block.row_bytes,
                  block.row_bytes);
    }
  }
}

void StageWork::WriteLabels(const RunParts& run, size_t first, size_t count, std::byte* to) const {
  const data::ExampleBlock& block = rows_->block;
  const uint32_t positions = run.model.program.positions;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t at = first_row_ + first + i, row = rows_->at(at);
    if (run.regression()) {
      reinterpret_cast<float*>(to)[i] = block.targets[row];
    } else if (run.next_token()) {
      LabelPositions(TokensOf(run, *rows_, at), LengthOf(run, *rows_, at), block.classes[row],
                     reinterpret_cast<int32_t*>(to) + i * positions);
    } else {
      reinterpret_cast<int32_t*>(to)[i] = block.classes[row];
    }
  }
}

void StageWork::WriteLengths(size_t first, size_t count, std::byte* to) const {
  for (size_t i = 0; i < count; ++i) {
    // An empty sequence is one position of padding: a layer has something to take a mean of.
    reinterpret_cast<int32_t*>(to)[i] =
        std::max(rows_->block.lengths[rows_->at(first_row_ + first + i)], 1);
  }
}

ClientJob StageWork::Job(const RunParts& run, const Upload& upload, float* end, float* vectors,
                         std::byte* memory, double* sums, float* outputs) const {
  ClientJob job;
  job.kind = kind_;
  job.steps = static_cast<uint32_t>(steps_.size());
  job.step = upload.Address<const JobStep>(places_.steps);
  if (!order_.empty()) job.order = upload.Address<const uint32_t>(places_.order);
  if (!moves_.empty()) job.moves = upload.Address<const MoveCode>(places_.moves);
  job.pad = static_cast<uint32_t>(run.setup.transform.pad_crop);
  job.padding = static_cast<Padding>(run.setup.transform.pad_mode);
  StoredRows stored;
  if (sends_rows_) {
    stored.features = upload.Address<const std::byte>(places_.features);
    if (sends_lengths()) stored.lengths = upload.Address<const int32_t>(places_.lengths);
    if (run.regression()) {
      stored.targets = upload.Address<const float>(places_.labels);
    } else {
      stored.classes = upload.Address<const int32_t>(places_.labels);
    }
    if (turn_ != nullptr) turn_->rows[static_cast<size_t>(stage_->rows)] = stored;
  } else {
    stored = *turn_->rows[static_cast<size_t>(stage_->rows)];
  }
  job.features = stored.features;
  job.classes = stored.classes;
  job.targets = stored.targets;
  job.lengths = stored.lengths;
  job.start = start_.Address(upload);
  job.memory = memory;
  job.sums = sums;
  if (output_count_ > 0) job.outputs = outputs;
  if (stage_ == nullptr) return job;

  const LocalConfig& local = stage_->local;
  job.lowest = run.model.Lowest(stage_->trainable.get());
  if (!trainable_.empty()) job.trainable = upload.Address<const uint8_t>(places_.trainable);
  job.smoothing = local.label_smoothing;
  job.weight_sum = static_cast<double>(run.setup.spec.outputs);
  if (!local.class_weights.empty()) {
    job.class_weights = upload.Address<const double>(places_.class_weights);
    job.weight_sum = std::accumulate(local.class_weights.begin(), local.class_weights.end(), 0.0);
  }
  if (kind_ == JobKind::kGradient) job.gradient = end;
  if (kind_ != JobKind::kTrain) return job;

  const size_t size = run.setup.spec.layout->size();
  const auto next_vector = [&] { return std::exchange(vectors, vectors + size); };
  job.weights = end;
  if (keeps_gradient(run)) job.gradient = next_vector();
  if (StateVectors(local) > 0) job.momentum = next_vector();
  if (StateVectors(local) > 1) job.second = next_vector();
  if (sums_v()) {
    job.v_sum = next_vector();
    job.v = job.v_sum;
    job.terms = upload.Address<const JobTerm>(places_.terms);
    job.term_count = static_cast<uint32_t>(terms_.size());
    auto* const terms = upload.Host<JobTerm>(places_.terms);
    for (size_t i = 0; i < terms_.size(); ++i) {
      terms[i] = {terms_[i].Address(upload), static_cast<float>(factors_[i])};
    }
  } else if (!terms_.empty()) {
    job.v = terms_[0].Address(upload);
  }
  if (!adam_.empty()) job.adam = upload.Address<const AdamNumbers<float>>(places_.adam);
  const SgdRule rule = SgdRule::Of(local, stage_->correction.mu);
  job.mu = static_cast<float>(rule.mu);
  if (rule.mu != 0) job.anchor = anchor_.Address(upload);
  job.lr = static_cast<float>(rule.lr);
  job.rho = static_cast<float>(rule.momentum);
  // AdamW's decay is in AdamNumbers::keep.
  job.decay = local.optimizer == "adamw" ? 0 : static_cast<float>(rule.weight_decay);
  job.nesterov = rule.nesterov ? 1 : 0;
  job.clip_norm = rule.clip_norm;
  job.clip_corrected = rule.clip_norm > 0 && local.clip == "corrected" ? 1 : 0;
  job.has_dropout = run.model.has_dropout ? 1 : 0;
  return job;
}

}  // namespace macaw::training::ondevice
