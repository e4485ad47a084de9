#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/numeric_profile.h"
#include "core/vector.h"
#include "core/work_counter.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "plan/evaluation.h"
#include "plan/local.h"
#include "plan/run_plan.h"
#include "plan/task.h"
#include "plan/transform.h"
#include "training/api/backend_choice.h"
#include "training/api/class_counts.h"
#include "training/api/stage.h"

namespace macaw::device {
class Device;
class Queue;
}  // namespace macaw::device

namespace macaw::training {

// The client to train. Rows of a split that no stage uses may be empty.
struct ClientTask {
  // The run's. Shuffles and dropout are drawn from (seed, round, phase, client, stage), crops and
  // flips from (seed, round, client, epoch) alone: a row is moved alike in each phase and stage.
  uint64_t seed = 0;
  Round round{};
  Phase phase{};
  ClientId client{};
  data::Rows train;
  data::Rows validation;
  data::Rows test;
  // Whether the worker only tries the run before it begins: one step of two rows, whose outcome is
  // dropped.
  bool trial = false;
};

// The error of a turn that failed for this client only: the trainer goes on with the next one.
absl::Status ClientFault(absl::string_view message);
bool IsClientFault(const absl::Status& status);

// A client's plan and rows. Both outlive the call that they are given to.
struct Turn {
  const LocalPlan* plan = nullptr;
  const ClientTask* task = nullptr;
};

// What came of each stage of a turn. Errors are those of LocalTrainer::Run.
using TurnOutcome = absl::StatusOr<std::vector<StageOutcome>>;

// Where a trainer works, if not on the host. The queue is the trainer's own: work for it may be
// added between the trainer's calls, and must be waited for before the next one.
struct DeviceSeat {
  device::Device* device = nullptr;
  device::Queue* queue = nullptr;
};

// Carries out local plans on one slot. It owns the slot's replica (a flat vector; parameters,
// gradient and momentum are views of it) and its batch buffers, and allocates them once. Used by
// one thread, the one that created it. The bits of an outcome depend on the plan, the task and the
// numeric profile alone, never on what ran before.
class LocalTrainer {
 public:
  virtual ~LocalTrainer() = default;

  // Errors name the client and the stage. A ClientFault leaves the client out of the round; others
  // end the node's work. A diverged update (a loss that is not finite) is *not* an error here: it
  // is refused where it is added, in the same way for every trainer.
  virtual TurnOutcome Run(const LocalPlan& plan, const ClientTask& task) = 0;

  // How many turns it likes to have at once: 1 for a processor core, more for a device that trains
  // clients side by side. May change from call to call.
  virtual size_t turns_at_once() const { return 1; }
  // Carries out the plans of the first n of some clients, side by side if it can, and returns what
  // came of those, in their order; n ≥ 1 unless there are no turns. The outcomes have the bits that
  // Run gives, and are valid until the next call.
  virtual std::vector<TurnOutcome> RunMany(std::span<const Turn> turns);
  // The device where the ends of stages are (EndVector::on_device).
  virtual std::optional<DeviceSeat> device_seat() const { return std::nullopt; }

  // The metric sums of `model` over rows [begin, end), in a fixed order and in batches of at most
  // `batch` rows. Behind them the counts of TrainerSetup::CountedClasses, if there are any; a
  // trainer that cannot give them leaves them out.
  virtual absl::StatusOr<MetricSums> Evaluate(ConstVectorView model, const data::Rows& rows,
                                              uint64_t begin, uint64_t end, uint32_t batch) = 0;

  virtual std::string name() const = 0;  // of its back end: "torch"
};

// What is the same for all clients of a run.
struct TrainerSetup {
  models::ModelSpec spec;
  TaskKind task = TaskKind::kClassification;
  LocalConfig local;  // class weights, label smoothing, optimizer
  TransformConfig transform;
  EvaluationMetrics metrics;  // of evaluations
  data::FeatureType feature_type = data::FeatureType::kF32;
  DType dtype = DType::kF32;
  bool hooks = false;       // whether the algorithm has hooks (Description::has_hooks)
  bool statistics = false;  // whether it has no training, but sums (Description::has_statistics)
  bool slices = false;      // whether it trains slices of the model (Description::has_slices)
  BackendChoice backend;    // of the node
  uint32_t lane = 0;  // which of the node's trainers it is: for its log, and to share devices out
  // Counts every batch that is trained on or evaluated; outlives the trainer. Null: nobody asks.
  WorkCounter* work = nullptr;

  ClassCounts CountedClasses() const { return ClassCounts::Of(metrics, task, spec.outputs); }

  // What the plan says of it; the rest is the node's.
  static TrainerSetup Of(const RunPlan& run, const models::ModelSpec& spec,
                         data::FeatureType feature_type);
};

}  // namespace macaw::training
