#pragma once

#include <memory>
#include <optional>
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

// What one slot has to show for a phase so far.
struct SlotResult {
  std::optional<aggregation::ExactSum> sum;
  std::vector<fleet::ClientRecord> included;
  std::vector<fleet::LeftOut> left_out;
};

// The trainer that the run asks for, on this node's data. It counts its batches in `work`, unless
// that is null.
absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainerFor(const RunContext& context,
                                                                       const data::Dataset& dataset,
                                                                       WorkCounter* work);

// One place to train: a replica, its buffers and its own exact sum. Used by the one thread that
// made it.
class Slot {
 public:
  // All of it must outlive the slot, which counts in `work` what it does: rows loaded, batches
  // trained on and evaluated, states digested.
  static absl::StatusOr<Slot> Make(const RunContext& context, const data::Dataset& dataset,
                                   WorkCounter& work);

  // One client's turn, from its rows to the slot's sum. What is the client's own (no rows, an
  // update that is not finite or out of bounds) leaves it out, with the reason. An error is this
  // node's and must not decide a result: somebody else gets the client.
  // `leased`: when its lease arrived.
  absl::Status Train(const PhaseContext& phase, const fleet::Assignment& assignment,
                     TimePoint leased);
  absl::StatusOr<fleet::EvaluationResult> Evaluate(const EvaluationContext& evaluation,
                                                   const fleet::EvaluationTask& task);
  // The attempt's turn took that many seconds longer than its work (emulation).
  void Lengthen(const Attempt& attempt, double seconds);
  // Hands over what the slot has and starts afresh.
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
  // The state to begin with. kDataLoss is about this client's state, whatever is wrong with it.
  absl::StatusOr<state::ClientState> ReadState(ClientId client, const Fence& version) const;
  // What to evaluate of a client; `state` keeps it alive.
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
