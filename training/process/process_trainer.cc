#include "training/process/process_trainer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/file_blocks.h"
#include "core/logging.h"
#include "core/peer/shared_vectors.h"
#include "core/status.h"
#include "training/backends.h"
#include "training/local_sgd.h"

namespace macaw::training::process {
namespace {

constexpr int kMostFailures = 3;      // of the program in a row, until the node gives up
constexpr uint32_t kRatedRows = 200;  // at a time, of those that the program has trained

absl::Status Put(ConstVectorView from, peer::SharedVectors& memory, TurnVector place) {
  const VectorView to = memory.At(place);
  if (from.bytes.data() == to.bytes.data()) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(memory.Reserve(place));
  constexpr size_t kPiece = size_t{16}
                            << 20;  // bytes: what the program needs next is its own memory
  for (size_t at = 0; at < to.bytes.size(); at += kPiece) {
    const std::span<std::byte> piece = to.bytes.subspan(at, std::min(kPiece, to.bytes.size() - at));
    Overwrite(piece.data(), from.bytes.subspan(at, piece.size()));
    LeaveToCache(from.bytes.subspan(at, piece.size()));
  }
  return absl::OkStatus();
}

// What the program must leave as it was, whatever it wrote: gaps are zero, and tensors that are not
// trained, statistics among them, are those of the start.
void Mend(ConstVectorView start, const std::vector<bool>* trainable, VectorView end) {
  peer::ZeroGaps(end);
  if (trainable == nullptr) return;
  const ParameterLayout& layout = *end.layout;
  const size_t element = SizeOf(layout.dtype());
  for (size_t i = 0; i < layout.entries().size(); ++i) {
    if ((*trainable)[i]) continue;
    const LayoutEntry& entry = layout.entries()[i];
    const size_t begin = entry.offset * element;
    std::memcpy(end.bytes.data() + begin, start.bytes.data() + begin, entry.size * element);
  }
}

// ‖a‖₁ of the optimizer that [local] names; a program that says none is taken to follow that.
double NormOfSteps(const LocalConfig& local, double mu, uint64_t steps) {
  if (local.optimizer != "sgd") return std::numeric_limits<double>::quiet_NaN();
  StepNorm norm(SgdRule::Of(local, mu));
  for (uint64_t step = 0; step < steps; ++step) norm.Step();
  return norm.value();
}

}  // namespace

template <typename Parse>
absl::StatusOr<Answer> ProcessTrainer::Ask(const std::string& question, const Parse& parse) {
  const absl::StatusOr<std::string> line = resident_->Ask(question, setup_.work);
  absl::StatusOr<Answer> answer = line.ok() ? parse(*line) : absl::StatusOr<Answer>(line.status());
  if (answer.ok()) return answer;
  last_memory_ = resident_->memory;
  resident_.reset();
  return Failed(answer.status());
}

ProcessTrainer::~ProcessTrainer() {
  if (resident_.has_value()) waiting_.Give(*std::move(resident_));
}

absl::StatusOr<std::vector<StageOutcome>> ProcessTrainer::Run(const LocalPlan& plan,
                                                              const ClientTask& task) {
  return RunStages(
      plan, task.client,
      [&](const Stage& stage, const std::vector<StageOutcome>& before) {
        return Train(stage, before, task);
      },
      &kept_);  // all stages use one place in the shared memory
}

absl::StatusOr<MetricSums> ProcessTrainer::Evaluate(ConstVectorView model, const data::Rows& rows,
                                                    uint64_t begin, uint64_t end, uint32_t batch) {
  MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, model, "model"));
  while (true) {
    absl::Status status = EnsureProgram();
    if (status.ok()) {
      absl::StatusOr<MetricSums> sums = Rate(model, rows, begin, end, batch);
      if (sums.ok()) failures_ = 0;
      if (!IsClientFault(sums.status())) return sums;
    } else if (!IsClientFault(status)) {
      return status;
    }
    // It has ended, and is started once more: Failed counts how often.
  }
}

absl::StatusOr<MetricSums> ProcessTrainer::Rate(ConstVectorView model, const data::Rows& rows,
                                                uint64_t begin, uint64_t end, uint32_t batch) {
  const Ready& ready = resident_->ready;
  if (ready.evaluates) return AskForSums(model, rows, begin, end);
  if (resident_->rows != nullptr && ready.outputs)
    return RateOutputs(model, rows, begin, end, batch);
  if (resident_->rows != nullptr && FusedBackend().Supports(setup_).ok()) {
    if (fused_ == nullptr) {
      MACAW_ASSIGN_OR_RETURN(fused_, FusedBackend().MakeTrainer(setup_));
    }
    return fused_->Evaluate(model, rows, begin, end, batch);
  }
  return absl::UnimplementedError(absl::StrCat(
      "the program \"", ready.name,
      "\" does not evaluate: give serve() an evaluate function, or turn off evaluation.clients and "
      "\"train\" and \"validation\" of evaluation.splits"));
}

absl::StatusOr<MetricSums> ProcessTrainer::AskForSums(ConstVectorView model, const data::Rows& rows,
                                                      uint64_t begin, uint64_t end) {
  MACAW_ASSIGN_OR_RETURN(const Place place, Give(rows, begin, end));
  MACAW_RETURN_IF_ERROR(Put(model, *resident_->memory, kStart));
  const uint64_t id = ++questions_;
  MACAW_ASSIGN_OR_RETURN(
      Answer answer, Ask(EvaluateLine(id, rows, begin, end, place),
                         [&](const auto& line) { return ParseEvaluated(line, id, setup_.task); }));
  // How many tokens of a sequence are in use is not known here; of no rows a program may have none.
  const auto asked = static_cast<double>(end - begin);
  if (answer.error.empty() && setup_.task != TaskKind::kNextToken && answer.sums[0] != 0 &&
      answer.sums[0] != asked) {
    answer.fatal = true;
    answer.error = absl::StrCat("the program reports ", answer.sums[0], " rows, and has ", asked);
  }
  if (answer.error.empty()) return std::move(answer.sums);
  const std::string words =
      absl::StrCat("client ", rows.noise.client.value, " cannot be evaluated: ", answer.error);
  return answer.fatal ? absl::InvalidArgumentError(words) : absl::InternalError(words);
}

absl::StatusOr<MetricSums> ProcessTrainer::RateOutputs(ConstVectorView model,
                                                       const data::Rows& rows, uint64_t begin,
                                                       uint64_t end, uint32_t batch) {
  if (!plain_.has_value()) {
    MACAW_ASSIGN_OR_RETURN(const Objective objective,
                           Objective::Make(setup_.task, setup_.spec.outputs, LocalConfig()));
    plain_ = objective.Plain(setup_.CountedClasses());
  }
  MACAW_RETURN_IF_ERROR(Put(model, *resident_->memory, kStart));
  MetricSums sums(plain_->metrics());
  for (uint64_t first = begin; first < end; first += batch) {
    MACAW_ASSIGN_OR_RETURN(const Place place,
                           Give(rows, first, std::min<uint64_t>(first + batch, end)));
    const uint64_t id = ++questions_;
    MACAW_ASSIGN_OR_RETURN(const Answer answer, Ask(OutputsLine(id, *place), [&](const auto& line) {
                             return ParseOutputs(line, id);
                           }));
    if (!answer.error.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model cannot be evaluated: ", answer.error));
    }
    MACAW_RETURN_IF_ERROR(resident_->rows->Rate(*place, *plain_, sums));
  }
  return sums;
}

absl::StatusOr<Place> ProcessTrainer::Give(const data::Rows& rows, uint64_t begin, uint64_t end) {
  if (resident_->rows == nullptr) return std::nullopt;
  return resident_->rows->Put(rows, begin, end);
}

absl::Status ProcessTrainer::CheckStage(const Stage& stage, const Ready& ready) const {
  const auto refuse = [&](auto&&... what) {
    return absl::UnimplementedError(
        absl::StrCat("the algorithm asks for ", what...,
                     ": train this run with another workers.backend or algorithm"));
  };
  const std::string program = absl::StrCat("the program \"", ready.name, "\"");
  if (stage.kind == StageKind::kGradient)
    return refuse("the gradient over all rows, and a program only trains");
  if (stage.kind == StageKind::kLoss)
    return refuse("the loss over all rows, and a program only trains");
  if (stage.kind == StageKind::kStatistics)
    return refuse("sums over rows, and a program only trains");
  if (stage.hooks != nullptr) return refuse("a hook in each step, and a program knows none");
  const AffineCorrection& correction = stage.correction;
  if (!ready.corrections && (correction.mu != 0 || !correction.v.empty())) {
    return refuse("a correction of the gradients, and ", program, " adds none (corrections=False)");
  }
  return CheckTrainable(stage, setup_.spec);
}

absl::StatusOr<StageOutcome> ProcessTrainer::Train(const Stage& stage,
                                                   const std::vector<StageOutcome>& before,
                                                   const ClientTask& task) {
  MACAW_RETURN_IF_ERROR(EnsureProgram());
  MACAW_RETURN_IF_ERROR(CheckStage(stage, resident_->ready));
  peer::SharedVectors& memory = *resident_->memory;
  const AffineCorrection& correction = stage.correction;
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView start, Resolve(stage.start, before));
  MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, start, "start"));
  const bool corrects = correction.mu != 0 || !correction.v.empty();
  const TurnVector weights = resident_->ready.in_place && !corrects ? kEnd : kStart;
  if (weights != kStart) GiveUpSpace(memory.At(kStart).bytes);  // of a former evaluation
  MACAW_RETURN_IF_ERROR(Put(start, memory, weights));
  MACAW_RETURN_IF_ERROR(memory.Reserve(kEnd));
  if (correction.anchor.has_value()) {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView anchor, Resolve(*correction.anchor, before));
    MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, anchor, "anchor"));
    MACAW_RETURN_IF_ERROR(Put(anchor, memory, kAnchor));
  }
  if (!correction.v.empty()) {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView v,
                           SumOf(correction.v, before, setup_.spec, v_sum_));
    MACAW_RETURN_IF_ERROR(Put(v, memory, kCorrection));
  }
  const data::Rows& rows = RowsOf(task, stage.rows);
  MACAW_ASSIGN_OR_RETURN(const Place place, Give(rows, 0, rows.size()));
  const uint64_t id = ++questions_;
  MACAW_ASSIGN_OR_RETURN(
      Answer answer,
      Ask(TrainLine(id, stage, before.size(), task, weights, place), [&](const auto& line) {
        return ParseTrained(line, id, setup_.task, place.has_value());
      }));
  if (answer.fatal)
    return absl::InvalidArgumentError(absl::StrCat("round ", task.round.value, ": ", answer.error));
  if (!answer.error.empty()) return ClientFault(answer.error);
  const VectorView end = memory.At(kEnd);
  Mend(start, stage.trainable.get(), end);
  if (answer.sums.empty()) {
    MACAW_ASSIGN_OR_RETURN(answer.sums, Rate(end, rows, 0, rows.size(), kRatedRows));
    answer.sums.resize(SchemaFor(setup_.task).sums.size());  // without counts of classes
  }
  // Whoever needs one of them next, puts it there.
  for (const TurnVector place : {kStart, kAnchor, kCorrection}) GiveUpSpace(memory.At(place).bytes);
  failures_ = 0;
  return StageOutcome{
      .end = end,
      .steps = answer.steps,
      .rate_sum = answer.rate_sum.value_or(stage.local.lr * static_cast<double>(answer.steps)),
      .a_norm1 = answer.a_norm1.has_value() ? *answer.a_norm1
                                            : NormOfSteps(stage.local, correction.mu, answer.steps),
      .examples = answer.rows,
      .sums = std::move(answer.sums)};
}

absl::Status ProcessTrainer::EnsureProgram() {
  if (resident_.has_value()) return absl::OkStatus();
  absl::StatusOr<Resident> started = StartResident(setup_);
  if (!started.ok()) return Failed(started.status());
  resident_ = *std::move(started);
  return absl::OkStatus();
}

absl::Status ProcessTrainer::Failed(const absl::Status& why) {
  Logger("program").Warning(absl::StrCat("slot=", setup_.lane, " ", why.message()));
  if (++failures_ < kMostFailures) return ClientFault(why.message());
  return absl::AbortedError(absl::StrCat(why.message(), "; it has now failed ", failures_,
                                         " times in a row, so this node gives up"));
}

}  // namespace macaw::training::process
