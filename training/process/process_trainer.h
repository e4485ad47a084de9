#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/vector.h"
#include "training/api/trainer.h"
#include "training/backends.h"
#include "training/objective.h"
#include "training/process/messages.h"
#include "training/process/resident.h"
#include "training/stage_inputs.h"

namespace macaw::training::process {

// Hands each turn to the owner's program, and starts that again when it has ended. `waiting` must
// outlive the trainer, which leaves its program there.
class ProcessTrainer final : public LocalTrainer {
 public:
  ProcessTrainer(TrainerSetup setup, WaitingRoom& waiting, Resident resident)
      : setup_(std::move(setup)), waiting_(waiting), resident_(std::move(resident)) {}
  ~ProcessTrainer() override;

  absl::StatusOr<std::vector<StageOutcome>> Run(const LocalPlan& plan,
                                                const ClientTask& task) override;
  // By the program's own function if it has one; of rows that it was given, from the outputs that
  // it gives, or by the fused kernels where these have the model.
  absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                      uint64_t end, uint32_t batch) override;
  std::string name() const override { return kProcessBackend; }

 private:
  absl::Status CheckStage(const Stage& stage, const Ready& ready) const;
  absl::StatusOr<StageOutcome> Train(const Stage& stage, const std::vector<StageOutcome>& before,
                                     const ClientTask& task);
  // The sums of rows that the program was given. It may have trained them, or is to evaluate them.
  absl::StatusOr<MetricSums> Rate(ConstVectorView model, const data::Rows& rows, uint64_t begin,
                                  uint64_t end, uint32_t batch);
  absl::StatusOr<MetricSums> RateOutputs(ConstVectorView model, const data::Rows& rows,
                                         uint64_t begin, uint64_t end, uint32_t batch);
  absl::StatusOr<MetricSums> AskForSums(ConstVectorView model, const data::Rows& rows,
                                        uint64_t begin, uint64_t end);
  // Where the rows lie for the program; none: it has its own.
  absl::StatusOr<Place> Give(const data::Rows& rows, uint64_t begin, uint64_t end);

  absl::Status EnsureProgram();  // starts the program again if it has ended
  // A program that answers nonsense is started again, as one that has ended.
  template <typename Parse>
  absl::StatusOr<Answer> Ask(const std::string& question, const Parse& parse);
  absl::Status Failed(const absl::Status& why);

  const TrainerSetup setup_;
  WaitingRoom& waiting_;
  std::optional<Resident> resident_;                  // none: it has ended
  std::shared_ptr<peer::SharedVectors> last_memory_;  // of the former one: an outcome may lie there
  uint64_t questions_ = 0;
  int failures_ = 0;  // since the last turn that succeeded
  FlatVector v_sum_;
  KeptEnds kept_{.layout = setup_.spec.layout, .ends = {}};
  std::optional<Objective> plain_;       // for outputs; made when it is first needed
  std::unique_ptr<LocalTrainer> fused_;  // the same
};

}  // namespace macaw::training::process
