#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "core/run_config.h"
#include "core/vector.h"
#include "data/dataset.h"
#include "training/api/metrics.h"

namespace macaw::training {

// What a client does in a round is data, not control flow: an algorithm's client half writes a
// short list of stages, and any trainer (eager, fused, captured in a graph, batched over clients)
// carries it out without knowing the algorithm's name. Torch-free.

struct Hooks;  // training/api/hooks.h: a loss or gradient rule that the formula below cannot say;
               // eager trainer only

// The vector that stage `stage` of the same plan ended with.
struct StageEnd {
  size_t stage = 0;
};
// A view's bytes live until the trainer's Run returns.
using Point = std::variant<ConstVectorView, StageEnd>;

// One vector of a sum of vectors.
struct Term {
  Point point;
  double factor = 1;  // −1: taken off
};

// g ← g + μ·(w − a) + v after the norm clip and before weight decay and momentum. `anchor` a: the
// stage's start where unset. v is the sum of its terms, added up in their order; none: zero.
// FedProx: μ, a = x. SCAFFOLD: v = c − c_i. FedDyn: μ = α, v = −g_k. FedLin: v = c − ∇f_i(x), the
// latter the end of a gradient stage. (Written as μ·w + v' with v' = −μ·a it would cancel badly in
// single precision.)
struct AffineCorrection {
  double mu = 0;
  std::optional<Point> anchor;
  std::vector<Term> v;
};

// Under which name a train stage's losses are in the metrics.
enum class Losses : uint8_t {
  kTrain,     // train_loss: of the model that the round is about; the last such stage's count
  kPersonal,  // personal_train_loss: of a model beside it that stays with the client
};

enum class StageKind : uint8_t {
  kTrain,     // local steps from `start`
  kGradient,  // mean gradient at `start` over all rows; the outcome's `end` is the gradient
  kLoss,      // metric sums at `start` over all rows; no `end`
};

struct Stage {
  StageKind kind = StageKind::kTrain;
  Point start;
  data::Split rows = data::Split::kTrain;
  LocalConfig local;  // epochs or steps, batches, optimizer; lr is the round's, schedule applied
  AffineCorrection correction;
  std::shared_ptr<const std::vector<bool>>
      trainable;                       // per layout entry; null: every parameter moves
  std::shared_ptr<const Hooks> hooks;  // null: the task's own loss
  Losses losses = Losses::kTrain;
};

struct LocalPlan {
  std::vector<Stage> stages;  // run in order; stage i may start from the end of a stage before it
};

// What a stage did. `end` is borrowed from the trainer and lives until its next Run.
struct StageOutcome {
  ConstVectorView end;  // kTrain: the vector after the last step; kGradient: the gradient
  uint64_t steps = 0;   // really taken
  double rate_sum = 0;  // Σ learning rate over those steps
  double a_norm1 = 0;  // ‖a‖₁ of FedNova: −displacement/η of the same optimizer on a unit gradient
  uint64_t examples = 0;  // rows seen, with repetition
  MetricSums sums;        // kTrain: over minibatches as they were trained on; kLoss: over all rows
};

}  // namespace macaw::training
