#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/gather.h"
#include "plan/task.h"
#include "training/api/trainer.h"
#include "training/batch_order.h"
#include "training/device/ops.h"
#include "training/device/program.h"
#include "training/device/upload.h"
#include "training/local_adam.h"
#include "training/objective.h"
#include "training/stage_inputs.h"

namespace macaw::training::ondevice {

// What is the same for all clients. Immutable.
struct RunParts {
  static absl::StatusOr<RunParts> Make(const TrainerSetup& setup);

  TrainerSetup setup;
  CompiledModel model;
  data::BatchGather gather;
  Objective objective;  // of setup.local

  bool regression() const { return setup.task == TaskKind::kRegression; }
  bool next_token() const { return setup.task == TaskKind::kNextToken; }
  bool moves() const { return setup.transform.pad_crop > 0 || setup.transform.flip; }
  // Whether rows are sent as the kernel's batches take them: normalised floats with their client's
  // noise (data.client_noise), the same in every epoch and stage. Else they are sent as stored.
  bool prepares_rows() const { return setup.transform.client_noise > 0; }
  size_t sent_row_bytes() const {
    return gather.example_elements() *
           (prepares_rows() ? sizeof(float) : data::SizeOf(setup.feature_type));
  }
  size_t sent_label_bytes() const { return model.program.positions * sizeof(int32_t); }
  // Of a row with all that is sent of it: its label, and its length or place.
  uint64_t SentBytes() const { return sent_row_bytes() + sent_label_bytes() + sizeof(int32_t); }
  // Of all rows that the turn's stages use, on the device; those that its plan adds later use one
  // of these splits, too.
  uint64_t RowBytes(const Turn& turn) const;
  // Of a row that is rated, its outputs included where they are counted.
  uint64_t RatedRowBytes() const {
    const bool counts = setup.CountedClasses().any();
    return SentBytes() + (counts ? static_cast<uint64_t>(setup.spec.outputs) * sizeof(float) : 0);
  }
};

// The vectors of the optimizer's own state: momentum, or Adam's two moments.
uint32_t StateVectors(const LocalConfig& local);

// The rows of a split, on the device.
struct StoredRows {
  const std::byte* features = nullptr;
  const int32_t* classes = nullptr;
  const float* targets = nullptr;
  const int32_t* lengths = nullptr;
};

// A turn under way. Its outcomes' ends are on the device alone until somebody looks at one (Fetch).
struct ClientTurn {
  explicit ClientTurn(const Turn& of) : turn(of), stages(*of.plan) {}

  const Turn& turn;
  StageSequence stages;
  std::vector<StageOutcome> outcomes;
  std::vector<const float*> ends;                 // per stage, on the device; null: none
  std::array<std::optional<StoredRows>, 3> rows;  // by split
  absl::Status status;
  bool done = false;  // no stage is left, or the turn failed
};

// A client's stage: checked, with its batches drawn. Then it is added to an upload, and when that
// has addresses, it is a job.
class StageWork {
 public:
  // Errors say what does not fit. `order` is scratch.
  static absl::StatusOr<StageWork> Make(const RunParts& run, const Stage& stage, ClientTurn& turn,
                                        BatchOrder& order);
  // Whether rows [begin, end) have labels and tokens that the model knows.
  static absl::Status CheckValues(const RunParts& run, const Objective& objective,
                                  const data::Rows& rows, uint64_t begin, uint64_t end);
  // The rating of rows [begin, end): a loss stage of the plain objective with the model at `model`.
  static StageWork Rating(const RunParts& run, const data::Rows& rows, uint64_t begin, uint64_t end,
                          ConstVectorView model);

  uint32_t most_rows() const { return most_rows_; }      // of a step
  uint32_t pass_rows(const RunParts& run) const;         // of a pass, at most
  uint64_t passed_rows() const { return passed_rows_; }  // of all steps
  bool has_end() const { return kind_ != JobKind::kLoss; }
  // Vectors of the model's size that the job needs beside its end.
  uint32_t vectors(const RunParts& run) const;
  StageOutcome& outcome() { return outcome_; }
  // Outputs that a rating keeps for the counts of classes, [rows, outputs]. Where they are on the
  // host: known once the job was launched, valid until the next launch in its room.
  size_t output_count() const { return output_count_; }
  void KeepsOutputsAt(std::span<const float> outputs) { outputs_ = outputs; }
  std::span<const float> outputs() const { return outputs_; }
  ClientTurn* turn() const { return turn_; }

  // Adds what the job reads. The rows are written while the upload is sent: until then, the work
  // and `run` must stay where they are.
  void AddTo(const RunParts& run, Upload& upload);
  // What is known once the upload has memory; writes what has addresses itself. `end` is null for a
  // loss stage. `vectors` is room for vectors() vectors, `outputs` for output_count() numbers.
  ClientJob Job(const RunParts& run, const Upload& upload, float* end, float* vectors,
                std::byte* memory, double* sums, float* outputs) const;

 private:
  // A vector: on the device already, or to be sent.
  struct VectorRef {
    const float* on_device = nullptr;
    std::span<const std::byte> bytes;
    size_t place = 0;
    const float* Address(const Upload& upload) const {
      return on_device != nullptr ? on_device : upload.Address<const float>(place);
    }
  };

  StageWork(const Stage* stage, const data::Rows& rows, JobKind kind)
      : stage_(stage), rows_(&rows), kind_(kind) {}

  static absl::StatusOr<VectorRef> Find(const RunParts& run, const Point& point,
                                        const ClientTurn& turn, absl::string_view what);
  absl::Status FindVectors(const RunParts& run, const Stage& stage, const ClientTurn& turn);
  absl::Status Draw(const RunParts& run, const Objective& objective, uint32_t index,
                    const ClientTask& task, BatchOrder& order);
  absl::Status CheckMemory(const RunParts& run) const;
  // Write the rows first_row_ + first … to an upload, of rows that are not on the device yet.
  void WriteFeatures(const RunParts& run, size_t first, size_t count, std::byte* to) const;
  void WriteLabels(const RunParts& run, size_t first, size_t count, std::byte* to) const;
  void WriteLengths(size_t first, size_t count, std::byte* to) const;
  // Whether the steps of a train stage need their gradients whole.
  bool keeps_gradient(const RunParts& run) const {
    return run.model.keeps_gradients || stage_->local.clip_norm > 0 ||
           AdamRule::IsFor(stage_->local) || most_rows_ > pass_rows(run);
  }
  bool sends_lengths() const { return rows_->block.lengths != nullptr; }
  bool sums_v() const { return !terms_.empty() && !(terms_.size() == 1 && factors_[0] == 1); }

  const Stage* stage_;  // null: the plain objective
  const data::Rows* rows_;
  JobKind kind_;
  ClientTurn* turn_ = nullptr;
  StageOutcome outcome_;
  uint32_t most_rows_ = 0;
  uint64_t passed_rows_ = 0;
  uint64_t first_row_ = 0, row_count_ = 0;  // that are sent
  size_t output_count_ = 0;
  std::span<const float> outputs_;

  std::vector<JobStep> steps_;
  std::vector<AdamNumbers<float>> adam_;  // per step; empty: SGD
  std::vector<uint32_t> order_;
  std::vector<MoveCode> moves_;
  VectorRef start_, anchor_;
  std::vector<VectorRef> terms_;
  std::vector<double> factors_;
  std::vector<uint8_t> trainable_;

  // Places in the upload.
  struct Places {
    size_t steps = 0, adam = 0, order = 0, moves = 0, terms = 0, trainable = 0, class_weights = 0;
    size_t features = 0, labels = 0, lengths = 0;
  };
  Places places_;
  bool sends_rows_ = true;
};

}  // namespace macaw::training::ondevice
