#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "algorithms/api/workspace.h"
#include "core/clock.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "proto/fleet/messages.h"
#include "training/api/trainer.h"
#include "worker/lane_sum.h"
#include "worker/load_client.h"
#include "worker/phase.h"

namespace macaw::worker {

// A client with a sum of its own.
struct ClientAlone {
  aggregation::ExactSum sum;
  fleet::ClientRecord record;
};

// The results of a lane in the current phase.
struct LaneResult {
  std::optional<aggregation::ExactSum> sum;  // of what is on the host
  std::vector<fleet::ClientRecord> included;
  std::vector<fleet::LeftOut> left_out;
  // Clients that the round asks for apart (SentApart). They are in no other sum.
  std::vector<ClientAlone> alone;
};

// A client to train, and when its lease arrived.
struct LeasedClient {
  fleet::Assignment assignment;
  TimePoint leased{};
};

// The round in which a client counts that is trained (PhaseContext::arrives); null: it does not
// count any more.
struct Arrival {
  std::shared_ptr<const PhaseContext> round;
  Duration waited{};  // until the server said so
};
using AwaitArrival = std::function<Arrival(const Attempt&)>;

// What a trainer of the run is made from, on this node's data.
training::TrainerSetup TrainerSetupFor(const RunContext& context, const data::Dataset& dataset);
// The trainer that the run asks for. It counts its batches in `work` unless that is null. `lane`:
// of this node, for its log.
absl::StatusOr<std::unique_ptr<training::LocalTrainer>> MakeTrainerFor(const RunContext& context,
                                                                       const data::Dataset& dataset,
                                                                       WorkCounter* work,
                                                                       uint32_t lane = 0);

// What trains on one thread: a trainer with its buffers, and an exact sum of its own. It serves one
// slot, or several of a device that trains clients side by side. Used by the one thread that made
// it.
class Lane {
 public:
  // All arguments must outlive the lane. The lane counts its work in `work`: rows loaded, batches
  // trained on and evaluated, states digested. `number`: among this node's lanes.
  static absl::StatusOr<Lane> Make(const RunContext& context, const data::Dataset& dataset,
                                   WorkCounter& work, uint32_t number = 0);

  // How many clients it likes to train at once.
  size_t width() const { return trainer_->turns_at_once(); }
  // Trains different clients, at once if the trainer can, and adds their updates to the sum of the
  // lane. A client whose own data is the cause (no rows, an update or a loss that is not finite or
  // out of bounds) is left out, with the reason. An error is a fault of this node, which must not
  // decide a result (another worker gets the clients), or a LastingFault. Client i is said to have
  // run on slot first_slot + i.
  absl::Status Train(const PhaseContext& phase, uint32_t first_slot,
                     std::span<const LeasedClient> clients);
  // Train, of one client of a phase that says `arrives`. It is added to the round that `await`
  // returns; if that is null, nothing is left of it.
  absl::Status TrainAndArrive(const PhaseContext& phase, uint32_t slot, const LeasedClient& client,
                              const AwaitArrival& await);
  absl::StatusOr<fleet::EvaluationResult> Evaluate(const EvaluationContext& evaluation,
                                                   const fleet::EvaluationTask& task);
  // Records that the attempt took this many seconds longer than its work (emulation).
  void Lengthen(const Attempt& attempt, double seconds);
  // Whether and why the attempt was left out; null: it was not.
  const fleet::LeftOut* LeftOutOf(const Attempt& attempt) const;
  // Opens the lane's sum for the phase, unless it is open.
  absl::Status OpenSum(const PhaseContext& phase);
  // What is on the trainer's device is taken with LaneSum::Collect, before TakeResult.
  LaneSum& sum() { return *sum_; }
  // Returns the results of the lane and clears them.
  LaneResult TakeResult();

 private:
  struct Turn;  // one client's
  // What the clients of a phase get, as long as this lives.
  struct Received {
    HeldModel model;
    std::vector<ConstVectorView> vectors;
  };

  Lane(const RunContext& context, const data::Dataset& dataset, WorkCounter& work,
       std::unique_ptr<training::LocalTrainer> trainer)
      : context_(&context),
        dataset_(&dataset),
        work_(&work),
        trainer_(std::move(trainer)),
        sum_(std::make_unique<LaneSum>(trainer_->device_seat(), trainer_->turns_at_once())) {}
  // An error of the trainer, or of what it left on its device: LostDevice if that is lost.
  absl::Status OfTrainer(const absl::Status& status) const;
  HeldModel Hold(ConstVectorView model, const TrainedPart& part) const;
  Received Receive(const PhaseContext& phase) const;
  template <typename Work>
  static Subject SubjectOf(const Work& work) {
    return {work.client, ClientId(work.place)};
  }
  // Reads the client's state, loads its rows, and asks the algorithm what to do. False: it is left
  // out.
  absl::StatusOr<bool> Start(const PhaseContext& phase, Turn& turn);
  // Loads the client's rows, and asks the algorithm what to do.
  absl::Status Begin(const PhaseContext& phase, Turn& turn);
  // Adds the turns' updates to the sum, keeps their states, and makes their records.
  absl::Status Conclude(std::span<Turn* const> turns, std::vector<training::TurnOutcome> outcomes);
  // The same, with a sum for each client that the round asks for apart.
  absl::Status ConcludeWithApart(const PhaseContext& phase, std::span<Turn* const> turns,
                                 std::vector<training::TurnOutcome> outcomes);
  absl::Status ConcludeApart(const PhaseContext& phase, Turn& turn, training::TurnOutcome outcome);
  bool MayAskApart() const { return HasContributions(context_->run.evaluation); }
  // Asks the algorithm for the client's result, and gives that to the sum.
  absl::Status Add(Turn& turn, training::TurnOutcome outcomes);
  // Whether its trainer reports no more work than can count (training/api/most_work.h).
  absl::Status CheckReported(const Turn& turn) const;
  // Once the sum has the client: keeps its state.
  absl::StatusOr<fleet::ClientRecord> Keep(Turn& turn);
  void LeaveOut(const fleet::Assignment& assignment, fleet::LeftOutReason reason,
                const absl::Status& why);
  // Leaves the client out of the round if it is itself the cause of the error; else returns it.
  absl::Status LeaveOutIfOwn(const fleet::Assignment& assignment, const absl::Status& why);
  // The state of the client before the work. kDataLoss for any fault of this client's state.
  absl::StatusOr<state::ClientState> ReadState(const Attempt& version) const;
  // The parameters to evaluate for a client; `model`, the one that came, and `state` keep them
  // alive.
  absl::StatusOr<ConstVectorView> PointOf(const EvaluationContext& evaluation,
                                          const ConstVectorView& model,
                                          const fleet::EvaluationTask& task,
                                          const state::ClientState& state);
  // Which of the models has the least loss on the client's training rows: the first of equals, and
  // of a client without rows.
  absl::StatusOr<uint32_t> ChoiceOf(const EvaluationContext& evaluation,
                                    const fleet::EvaluationTask& task);
  // The parameters after the run's fine-tuning of `start` on the client's rows for that
  // (LoadRowsToTuneOn); empty if it has none. Valid until the trainer's next Run.
  absl::StatusOr<ConstVectorView> FineTuned(const EvaluationContext& evaluation,
                                            const fleet::EvaluationTask& task,
                                            ConstVectorView start);
  absl::StatusOr<fleet::EvaluationResult> TryToEvaluate(const EvaluationContext& evaluation,
                                                        const fleet::EvaluationTask& task);
  absl::StatusOr<fleet::EvaluationResult> DigestStates(const EvaluationContext& evaluation,
                                                       const fleet::EvaluationTask& task) const;
  algorithms::Workspace& CleanWorkspace(size_t index);

  const RunContext* context_;
  const data::Dataset* dataset_;
  WorkCounter* work_;
  std::unique_ptr<training::LocalTrainer> trainer_;
  std::unique_ptr<LaneSum> sum_;
  std::unique_ptr<LaneSum> apart_;  // for one client after the other; null before the first
  std::deque<algorithms::Workspace> workspaces_;  // of the clients that are trained at once
  LaneResult result_;
};

}  // namespace macaw::worker
