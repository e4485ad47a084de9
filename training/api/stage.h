#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "data/dataset.h"
#include "models/slice.h"
#include "plan/local.h"
#include "training/api/end_vector.h"
#include "training/api/metrics.h"

namespace macaw::training {

// What a client does in a round is described by data, not by code: the client half of an algorithm
// writes a short list of stages, and the trainer of any back end can carry it out without
// knowing the algorithm. No LibTorch here.

// A loss or a gradient rule beyond the formula below (training/api/hooks.h); LibTorch only.
struct Hooks;
// Sums over rows (training/api/row_statistics.h).
class RowStatistics;

// The result of stage `stage` of the same plan.
struct StageEnd {
  size_t stage = 0;
};
// A point in parameter space. The bytes of a view must live until the trainer's Run returns.
using Point = std::variant<ConstVectorView, StageEnd>;

// One vector of a weighted sum.
struct Term {
  Point point;
  double factor = 1;  // −1: subtracted
};

// g ← g + μ·(w − a) + v, after the norm clip and before weight decay and momentum. The `anchor` a
// is the stage's start unless set. v is the sum of its terms, added in their order; without terms
// it is zero. FedProx: μ, a = x. SCAFFOLD: v = c − c_i. FedDyn: μ = α, v = −g_k. FedLin: v = c −
// ∇f_i(x), where ∇f_i(x) is the end of a gradient stage. (Writing it as μ·w + v' with v' = −μ·a
// would lose precision in float32.)
struct AffineCorrection {
  double mu = 0;
  std::optional<Point> anchor;
  std::vector<Term> v;
};

// The metric to which a train stage's losses belong.
enum class Losses : uint8_t {
  kTrain,  // train_loss: of the model that the round trains; the last such stage of a plan counts
  kPersonal,  // personal_train_loss: of a model that stays with the client
};

enum class StageKind : uint8_t {
  kTrain,     // local training steps from `start`
  kGradient,  // mean gradient at `start` over all rows; it is the outcome's `end`
  kLoss,      // metric sums at `start` over all rows; no `end`
  // `statistics` over all rows; they are the outcome's `end`. Only in plans of such stages, of a
  // rule with Description::has_statistics; LocalPlan::more is not asked.
  kStatistics,
};

struct Stage {
  StageKind kind = StageKind::kTrain;
  Point start;
  data::Split rows = data::Split::kTrain;
  // Epochs or steps, batches, optimizer; lr includes the round's schedule factor.
  LocalConfig local;
  AffineCorrection correction;
  std::shared_ptr<const std::vector<bool>>
      trainable;                       // per layout entry; null: all parameters are trained
  std::shared_ptr<const Hooks> hooks;  // null: the task's own loss
  // Points whose representations of each batch Hooks::representations is given.
  std::vector<Point> references;
  Losses losses = Losses::kTrain;
  // Of the model that it trains: start, end and all its other vectors have the layout of
  // models::SliceOf. The same for all stages of a plan, of a rule with Description::has_slices.
  models::Width width;
  // Classification: an output whose class none of the rows has counts as 0, and has no gradient.
  bool masks_classes = false;
  std::shared_ptr<const RowStatistics> statistics;  // of kStatistics
};

// The result of a stage. `end` belongs to the trainer and is valid until its next Run.
struct StageOutcome {
  EndVector end;        // kTrain: the vector after the last step; kGradient: the gradient
  uint64_t steps = 0;   // steps taken
  double rate_sum = 0;  // Σ learning rate over those steps
  double a_norm1 = 0;  // FedNova's ‖a‖₁: −displacement/η of the same optimizer for a unit gradient
  uint64_t examples = 0;  // rows used, counting repetitions
  // Of a stage that masks classes, by class: whether a row has it; empty: the rows have all.
  std::vector<bool> classes;
  MetricSums sums;  // kTrain: over the minibatches during training; kLoss: over all rows
};

struct LocalPlan {
  std::vector<Stage> stages;  // run in order; a stage may start from the end of an earlier one
  // Asked once all stages so far have run, with their outcomes: stages to go on with, or none when
  // the plan is done. Optional. The runner of a rule sets it from
  // ClientAlgorithm::Continue.
  std::function<absl::StatusOr<std::vector<Stage>>(std::span<const StageOutcome>)> more = {};
};

}  // namespace macaw::training
