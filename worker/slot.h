#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/workspace.h"
#include "core/clock.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "proto/fleet/messages.h"
#include "training/api/trainer.h"
#include "worker/load_client.h"
#include "worker/phase.h"

namespace macaw::worker {

// The results of a slot in the current phase.
struct SlotResult {
  std::optional<aggregation::ExactSum> sum;
  std::vector<fleet::ClientRecord> included;
  std::vector<fleet::LeftOut> left_out;
};

// The trainer that the run asks for, on this node's data. It counts its batches in `work` unless
// that is null. `slot`: of this node, for its log.
absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainerFor(const RunContext& context,
                                                                       const data::Dataset& dataset,
                                                                       WorkCounter* work,
                                                                       uint32_t slot = 0);

// One place to train: a replica, its buffers and its own exact sum. Used by the one thread that
// made it.
class Slot {
 public:
  // All arguments must outlive the slot. The slot counts its work in `work`: rows loaded, batches
  // trained on and evaluated, states digested. `number`: among this node's slots.
  static absl::StatusOr<Slot> Make(const RunContext& context, const data::Dataset& dataset,
                                   WorkCounter& work, uint32_t number = 0);

  // Trains one client and adds its update to the sum of the slot. A client whose own data is the
  // cause (no rows, an update that is not finite or out of bounds) is left out, with the reason. An
  // error is a fault of this node, which must not decide a result: another worker gets the client.
  // `leased`: when the lease arrived.
  absl::Status Train(const PhaseContext& phase, const fleet::Assignment& assignment,
                     TimePoint leased);
  absl::StatusOr<fleet::EvaluationResult> Evaluate(const EvaluationContext& evaluation,
                                                   const fleet::EvaluationTask& task);
  // Records that the attempt took this many seconds longer than its work (emulation).
  void Lengthen(const Attempt& attempt, double seconds);
  // Whether and why the client that was trained last was left out; null: it was not.
  const fleet::LeftOut* LeftOutOf(const fleet::Assignment& assignment) const;
  // Returns the results of the slot and clears them.
  SlotResult TakeResult() { return std::exchange(result_, {}); }

 private:
  Slot(const RunContext& context, const data::Dataset& dataset, WorkCounter& work,
       std::unique_ptr<training::LocalTrainer> trainer)
      : context_(&context), dataset_(&dataset), work_(&work), trainer_(std::move(trainer)) {}
  template <typename Work>
  static Subject SubjectOf(const Work& work) {
    return {work.client, ClientId(work.place)};
  }
  absl::StatusOr<fleet::ClientRecord> TrainOne(const PhaseContext& phase,
                                               const fleet::Assignment& assignment,
                                               const state::ClientState& state);
  // Adds the client's update to the sum and keeps its state. True: it has one.
  absl::StatusOr<bool> Conclude(const algorithms::ClientContext& context,
                                const fleet::Assignment& assignment,
                                std::span<const training::StageOutcome> outcomes);
  // The client's state before training. kDataLoss for any fault of this client's state.
  absl::StatusOr<state::ClientState> ReadState(ClientId client, const Fence& version) const;
  // The parameters to evaluate for a client; `state` keeps them alive.
  absl::StatusOr<ConstVectorView> PointOf(const EvaluationContext& evaluation,
                                          const fleet::EvaluationTask& task,
                                          const state::ClientState& state);
  absl::StatusOr<fleet::EvaluationResult> DigestStates(const EvaluationContext& evaluation,
                                                       const fleet::EvaluationTask& task) const;
  absl::Status OpenSum(const PhaseContext& phase);

  const RunContext* context_;
  const data::Dataset* dataset_;
  WorkCounter* work_;
  std::unique_ptr<training::LocalTrainer> trainer_;
  algorithms::Workspace workspace_;
  SlotResult result_;
};

}  // namespace macaw::worker
