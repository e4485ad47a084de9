// The back end whose trainers hand each turn to a program of the owner's.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "core/logging.h"
#include "core/status.h"
#include "training/backends.h"
#include "training/local_sgd.h"
#include "training/process/messages.h"
#include "training/process/program.h"
#include "training/process/shared_vectors.h"
#include "training/stage_inputs.h"

namespace macaw::training {
namespace process {
namespace {

constexpr int kMostFailures = 3;  // of the program in a row, until the node gives up

// A program that has said what it is.
struct Resident {
  ProgramOptions options;
  uint32_t slot = 0;
  std::string hello;
  std::shared_ptr<SharedVectors> memory;
  Ready ready;
  std::unique_ptr<Program> program;
  std::thread::id thread;  // it ends with the thread that started it
};

absl::StatusOr<Resident> StartResident(const TrainerSetup& setup) {
  Resident resident{
      .options = setup.backend.program, .slot = setup.lane, .thread = std::this_thread::get_id()};
  MACAW_ASSIGN_OR_RETURN(resident.memory, SharedVectors::Make(setup.spec.layout));
  resident.hello = HelloLine(setup, *resident.memory);
  MACAW_ASSIGN_OR_RETURN(
      resident.program, Program::Start(setup.backend.program, resident.memory->file(), setup.lane));
  absl::StatusOr<std::string> line = resident.program->Ask(resident.hello, setup.work);
  absl::Status status = line.status();
  if (status.ok()) {
    absl::StatusOr<Ready> ready = ParseReady(*line);
    status = ready.status();
    if (status.ok()) resident.ready = *std::move(ready);
  }
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("workers.command (", absl::StrJoin(setup.backend.program.command, " "),
                     ") did not start: ", status.message()));
  }
  Logger("program").Info(absl::StrCat("slot=", setup.lane, " ready name=\"", resident.ready.name,
                                      "\" corrections=", resident.ready.corrections,
                                      " evaluates=", resident.ready.evaluates));
  return resident;
}

// One program that was started to ask for its name, or to try a batch, and waits for its slot, the
// first one. Starting one may take seconds. Thread-safe.
class WaitingRoom {
 public:
  void Give(Resident resident) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (resident.slot != 0) return;                             // it was told another one
    if (resident.thread != std::this_thread::get_id()) return;  // its thread may end soon
    const absl::MutexLock lock(&mutex_);
    if (!waiting_.has_value()) waiting_ = std::move(resident);
  }
  std::optional<Resident> Take(const TrainerSetup& setup) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (setup.lane != 0) return std::nullopt;
    std::optional<Resident> resident = std::exchange(waiting_, std::nullopt);
    if (!resident.has_value() || resident->options != setup.backend.program ||
        resident->hello != HelloLine(setup, *resident->memory)) {
      return std::nullopt;
    }
    return resident;
  }

 private:
  absl::Mutex mutex_;
  std::optional<Resident> waiting_ ABSL_GUARDED_BY(mutex_);
};

void Copy(ConstVectorView from, VectorView to) {
  std::memcpy(to.bytes.data(), from.bytes.data(), to.bytes.size());
}

// What the program must leave as it was, whatever it wrote: gaps are zero, and parameters that are
// not trained are those of the start.
void Mend(ConstVectorView start, const std::vector<bool>* trainable, VectorView end) {
  const ParameterLayout& layout = *end.layout;
  const size_t element = SizeOf(layout.dtype());
  size_t done = 0;  // bytes
  for (size_t i = 0; i < layout.entries().size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    const size_t begin = entry.offset * element, bytes = entry.size * element;
    std::memset(end.bytes.data() + done, 0, begin - done);
    done = begin + bytes;
    if (trainable == nullptr || (*trainable)[i] || entry.group == Group::kBuffer) continue;
    std::memcpy(end.bytes.data() + begin, start.bytes.data() + begin, bytes);
  }
  std::memset(end.bytes.data() + done, 0, end.bytes.size() - done);
}

// ‖a‖₁ of the optimizer that [local] names, which the program is taken to follow.
double NormOfSteps(const LocalConfig& local, double mu, uint64_t steps) {
  if (local.optimizer != "sgd") return std::numeric_limits<double>::quiet_NaN();
  StepNorm norm(SgdRule::Of(local, mu));
  for (uint64_t step = 0; step < steps; ++step) norm.Step();
  return norm.value();
}

class ProcessTrainer final : public LocalTrainer {
 public:
  ProcessTrainer(TrainerSetup setup, WaitingRoom& waiting, Resident resident)
      : setup_(std::move(setup)), waiting_(waiting), resident_(std::move(resident)) {}
  ~ProcessTrainer() override {
    if (resident_.has_value()) waiting_.Give(*std::move(resident_));
  }

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override {
    return RunStages(
        plan, task.client,
        [&](const Stage& stage, const std::vector<StageOutcome>& before) {
          return Train(stage, before, task);
        },
        &kept_);  // all stages use one place in the shared memory
  }

  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t /*batch*/) override {
    MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, model, "model"));
    while (true) {
      if (const absl::Status status = EnsureProgram(); !status.ok()) {
        if (!IsClientFault(status)) return status;
        continue;
      }
      if (!resident_->ready.evaluates) {
        return absl::UnimplementedError(absl::StrCat(
            "the program \"", resident_->ready.name,
            "\" does not evaluate: give serve() an evaluate function, or turn off "
            "evaluation.clients and \"train\" and \"validation\" of evaluation.splits"));
      }
      Copy(model, resident_->memory->At(SharedVectors::kStart));
      const uint64_t id = ++questions_;
      absl::StatusOr<Answer> answer =
          Ask(EvaluateLine(id, rows, begin, end),
              [&](const auto& line) { return ParseEvaluated(line, id, setup_.task); });
      if (answer.ok() && answer->error.empty()) return std::move(answer->sums);
      if (answer.ok()) {
        return absl::InternalError(absl::StrCat("client ", rows.noise.client.value,
                                                " cannot be evaluated: ", answer->error));
      }
      if (!IsClientFault(answer.status())) return answer.status();  // else once more
    }
  }

  std::string name() const override { return kProcessBackend; }

 private:
  absl::Status CheckStage(const Stage& stage, const Ready& ready) const {
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
    if (stage.hooks != nullptr) return refuse("a hook in each step, and a program knows none");
    const AffineCorrection& correction = stage.correction;
    if (!ready.corrections && (correction.mu != 0 || !correction.v.empty())) {
      return refuse("a correction of the gradients, and ", program,
                    " adds none (corrections=False)");
    }
    const size_t entries = setup_.spec.layout->entries().size();
    if (stage.trainable != nullptr && stage.trainable->size() != entries) {
      return absl::InvalidArgumentError(absl::StrCat(
          "names ", stage.trainable->size(), " trainable tensors, the model has ", entries));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StageOutcome> Train(const Stage& stage, const std::vector<StageOutcome>& before,
                                     const ClientTask& task) {
    MACAW_RETURN_IF_ERROR(EnsureProgram());
    MACAW_RETURN_IF_ERROR(CheckStage(stage, resident_->ready));
    SharedVectors& memory = *resident_->memory;
    const AffineCorrection& correction = stage.correction;
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView start, Resolve(stage.start, before));
    MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, start, "start"));
    Copy(start, memory.At(SharedVectors::kStart));
    if (correction.anchor.has_value()) {
      MACAW_ASSIGN_OR_RETURN(const ConstVectorView anchor, Resolve(*correction.anchor, before));
      MACAW_RETURN_IF_ERROR(CheckVector(setup_.spec, anchor, "anchor"));
      Copy(anchor, memory.At(SharedVectors::kAnchor));
    }
    if (!correction.v.empty()) {
      MACAW_ASSIGN_OR_RETURN(const ConstVectorView v,
                             SumOf(correction.v, before, setup_.spec, v_sum_));
      Copy(v, memory.At(SharedVectors::kCorrection));
    }
    const uint64_t id = ++questions_;
    MACAW_ASSIGN_OR_RETURN(
        Answer answer, Ask(TrainLine(id, stage, before.size(), task),
                           [&](const auto& line) { return ParseTrained(line, id, setup_.task); }));
    if (!answer.error.empty()) return ClientFault(answer.error);
    failures_ = 0;
    const VectorView end = memory.At(SharedVectors::kEnd);
    Mend(start, stage.trainable.get(), end);
    return StageOutcome{.end = end,
                        .steps = answer.steps,
                        .rate_sum = stage.local.lr * static_cast<double>(answer.steps),
                        .a_norm1 = NormOfSteps(stage.local, correction.mu, answer.steps),
                        .examples = answer.rows,
                        .sums = std::move(answer.sums)};
  }

  // Starts the program again if it has ended.
  absl::Status EnsureProgram() {
    if (resident_.has_value()) return absl::OkStatus();
    absl::StatusOr<Resident> started = StartResident(setup_);
    if (!started.ok()) return Failed(started.status());
    resident_ = *std::move(started);
    return absl::OkStatus();
  }

  // A program that answers nonsense is started again, as one that has ended.
  template <typename Parse>
  absl::StatusOr<Answer> Ask(const std::string& question, const Parse& parse) {
    const absl::StatusOr<std::string> line = resident_->program->Ask(question, setup_.work);
    absl::StatusOr<Answer> answer =
        line.ok() ? parse(*line) : absl::StatusOr<Answer>(line.status());
    if (answer.ok()) return answer;
    last_memory_ = resident_->memory;
    resident_.reset();
    return Failed(answer.status());
  }

  absl::Status Failed(const absl::Status& why) {
    Logger("program").Warning(absl::StrCat("slot=", setup_.lane, " ", why.message()));
    if (++failures_ < kMostFailures) return ClientFault(why.message());
    return absl::AbortedError(absl::StrCat(why.message(), "; it has now failed ", failures_,
                                           " times in a row, so this node gives up"));
  }

  const TrainerSetup setup_;
  WaitingRoom& waiting_;
  std::optional<Resident> resident_;            // none: it has ended
  std::shared_ptr<SharedVectors> last_memory_;  // of the former one: an outcome may lie there
  uint64_t questions_ = 0;
  int failures_ = 0;  // since the last turn that succeeded
  FlatVector v_sum_;
  KeptEnds kept_{.layout = setup_.spec.layout, .ends = {}};
};

class Process final : public Backend {
 public:
  std::string name() const override { return kProcessBackend; }

  absl::Status Supports(const TrainerSetup& setup) const override {
    if (setup.transform.changes_rows()) {
      return absl::UnimplementedError(
          "the owner's own program reads its own rows, so data.label_noise and data.concept_shift "
          "do not reach them");
    }
    if (!setup.hooks) return absl::OkStatus();
    return absl::UnimplementedError(
        "the algorithm's local steps have hooks (a loss or a correction of its own), which need "
        "LibTorch");
  }

  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override {
    MACAW_RETURN_IF_ERROR(Supports(setup));
    MACAW_ASSIGN_OR_RETURN(Resident resident, TakeOrStart(setup));
    NumericProfile profile{
        .trainer = kProcessBackend, .instruction_set = "any", .libraries = resident.ready.name};
    waiting_.Give(std::move(resident));
    return profile;
  }

  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override {
    MACAW_RETURN_IF_ERROR(Supports(setup));
    MACAW_ASSIGN_OR_RETURN(Resident resident, TakeOrStart(setup));
    return std::make_unique<ProcessTrainer>(setup, waiting_, std::move(resident));
  }

  std::string Report() const override { return "the owner's own program, workers.command"; }

 private:
  absl::StatusOr<Resident> TakeOrStart(const TrainerSetup& setup) const {
    std::optional<Resident> waiting = waiting_.Take(setup);
    if (waiting.has_value()) return *std::move(waiting);
    return StartResident(setup);
  }

  mutable WaitingRoom waiting_;
};

}  // namespace
}  // namespace process

const Backend& ProcessBackend() {
  // Never destroyed: a program that waits ends with this process.
  static const auto& backend = *new process::Process;
  return backend;
}

}  // namespace macaw::training
