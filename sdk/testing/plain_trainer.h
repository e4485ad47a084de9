#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"
#include "training/api/hooks.h"
#include "training/api/stage.h"
#include "training/local_optimizer.h"

namespace macaw::algorithms {

// A model's parameters in layout order, without gaps and buffers.
using Numbers = std::vector<double>;

// A test client's objective. Thread-safe.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual double Loss(const Numbers& w) const = 0;
  virtual Numbers Gradient(const Numbers& w) const = 0;
};

// f(x) = ½(x−b)ᵀA(x−b) in two dimensions.
class Quadratic final : public Objective {
 public:
  Quadratic(std::array<std::array<double, 2>, 2> a, std::array<double, 2> b) : a_(a), b_(b) {}
  double Loss(const Numbers& w) const override;
  Numbers Gradient(const Numbers& w) const override;

 private:
  std::array<std::array<double, 2>, 2> a_;
  std::array<double, 2> b_;
};

// f(x) = ½‖x−b‖² in any number of dimensions.
class SquaredDistance final : public Objective {
 public:
  explicit SquaredDistance(Numbers b) : b_(std::move(b)) {}
  double Loss(const Numbers& w) const override;
  Numbers Gradient(const Numbers& w) const override;

 private:
  const Numbers b_;
};

// Carries out plans on one client's objective; every batch is the full one. It takes `local.steps`
// steps, or epochs · examples if that is 0, with the trainers' own step
// (training/local_optimizer.h). Buffers in the layout move a tenth of the way to `examples` in each
// step, as statistics would. Hooks may correct gradients, and rate representations, for which the
// client is one row whose representation is what the stage trains of the model; a loss hook, which
// needs LibTorch, is refused. The vectors of outcomes are valid until the next Run. One thread.
//
// It counts the rows that would pass through a model, as if each batch had the rows that
// local.batch_size says of a client's `rows` (0: of as many as it has examples).
class PlainTrainer {
 public:
  explicit PlainTrainer(LayoutPtr layout);

  absl::StatusOr<std::vector<training::StageOutcome>> Run(const training::LocalPlan& plan,
                                                          const Objective& objective,
                                                          uint32_t examples, uint64_t rows = 0);
  // Of the last Run: each row as often as it passes forth and back, and kForward of one where it
  // passes forth alone.
  double passed() const { return passed_; }

 private:
  void Train(const training::Stage& stage, const Objective& objective, ConstVectorView anchor,
             ConstVectorView v, const std::vector<Numbers>& references, VectorView w,
             uint32_t examples, uint64_t rows, training::StageOutcome& outcome);

  LayoutPtr layout_;
  FlatVector gradient_;
  FlatVector v_sum_;
  training::LocalOptimizer optimizer_;
  std::vector<FlatVector> ends_;
  double passed_ = 0;
};

// A layout with one tensor "x".
LayoutPtr Plain(int64_t size, DType dtype);

Numbers NumbersOf(ConstVectorView vector);
void SetNumbers(const Numbers& numbers, VectorView vector);

}  // namespace macaw::algorithms
