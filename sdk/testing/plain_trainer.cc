#include "sdk/testing/plain_trainer.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "plan/local_steps.h"
#include "training/local_optimizer.h"
#include "training/stage_inputs.h"

namespace macaw::algorithms {
namespace {

using training::Stage;
using training::StageKind;
using training::StageOutcome;

// A pass in training: a statistic moves by a tenth towards the number of the client's examples.
void MoveBuffers(uint32_t examples, const std::vector<bool>* trainable, VectorView w) {
  DispatchDType(w.dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < w.layout->entries().size(); ++i) {
      const LayoutEntry& entry = w.layout->entries()[i];
      const bool moves = trainable == nullptr || trainable->at(i);
      if (entry.group != Group::kBuffer || !moves) continue;
      for (T& b : w.As<T>().subspan(entry.offset, entry.size))
        b += static_cast<T>(0.1) * (static_cast<T>(examples) - b);
    }
  });
}

// The paired gradient for Mime's hook; every batch is the full one.
class FullBatch final : public training::StepGradients {
 public:
  // `examples`: of the client, by which a pass moves statistics. `trainable`: of the stage.
  FullBatch(const Objective& objective, const LayoutPtr& layout, uint32_t examples,
            const std::vector<bool>* trainable)
      : objective_(objective), gradient_(layout), examples_(examples), trainable_(trainable) {}
  uint64_t asked() const { return asked_; }  // gradients
  ConstVectorView GradientAt(ConstVectorView point) override {
    ++asked_;
    SetNumbers(objective_.Gradient(NumbersOf(point)), gradient_.view());
    return gradient_.view();
  }
  ConstVectorView GradientAtOwn(VectorView point) override {
    MoveBuffers(examples_, trainable_, point);
    return GradientAt(point);
  }

 private:
  const Objective& objective_;
  FlatVector gradient_;
  const uint32_t examples_;
  const std::vector<bool>* const trainable_;
  uint64_t asked_ = 0;
};

// Which of NumbersOf's numbers the stage trains.
std::vector<bool> Trained(const ParameterLayout& layout, const Stage& stage) {
  std::vector<bool> trained;
  for (size_t i = 0; i < layout.entries().size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    if (entry.group != Group::kParameter) continue;
    trained.insert(trained.end(), entry.size, stage.trainable == nullptr || stage.trainable->at(i));
  }
  return trained;
}

Numbers Chosen(const Numbers& all, const std::vector<bool>& which) {
  Numbers chosen;
  for (size_t i = 0; i < all.size(); ++i)
    if (which[i]) chosen.push_back(all[i]);
  return chosen;
}

// The gradient of the objective and of a hook on representations.
Numbers GradientOf(const Stage& stage, const Objective& objective, const ParameterLayout& layout,
                   const std::vector<Numbers>& references, const Numbers& w) {
  Numbers gradient = objective.Gradient(w);
  if (stage.hooks == nullptr || !stage.hooks->representations) return gradient;
  const std::vector<bool> trained = Trained(layout, stage);
  const Numbers own = Chosen(w, trained);
  std::vector<Numbers> others;
  for (const Numbers& reference : references) others.push_back(Chosen(reference, trained));
  training::Representations z{.rows = 1, .width = own.size(), .own = own};
  for (const Numbers& other : others) z.references.emplace_back(other);
  Numbers more(own.size());
  stage.hooks->representations(z, more);
  for (size_t i = 0, next = 0; i < w.size(); ++i)
    if (trained[i]) gradient[i] += more[next++];
  return gradient;
}

}  // namespace

double Quadratic::Loss(const Numbers& w) const {
  const Numbers g = Gradient(w);
  return 0.5 * (g[0] * (w[0] - b_[0]) + g[1] * (w[1] - b_[1]));
}

Numbers Quadratic::Gradient(const Numbers& w) const {
  Numbers g(2);
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j) g[i] += a_[i][j] * (w[j] - b_[j]);
  }
  return g;
}

LayoutPtr Plain(int64_t size, DType dtype) { return ParameterLayout::Scalars("x", size, dtype); }

Numbers NumbersOf(ConstVectorView vector) {
  Numbers numbers;
  DispatchDType(vector.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : vector.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<const T> values = vector.As<T>().subspan(entry.offset, entry.size);
      numbers.insert(numbers.end(), values.begin(), values.end());
    }
  });
  return numbers;
}

void SetNumbers(const Numbers& numbers, VectorView vector) {
  size_t next = 0;
  DispatchDType(vector.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : vector.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      for (T& value : vector.As<T>().subspan(entry.offset, entry.size))
        value = static_cast<T>(numbers.at(next++));
    }
  });
}

double SquaredDistance::Loss(const Numbers& w) const {
  double loss = 0;
  for (size_t i = 0; i < w.size(); ++i) loss += 0.5 * (w[i] - b_[i]) * (w[i] - b_[i]);
  return loss;
}

Numbers SquaredDistance::Gradient(const Numbers& w) const {
  Numbers gradient(w);
  for (size_t i = 0; i < w.size(); ++i) gradient[i] -= b_[i];
  return gradient;
}

PlainTrainer::PlainTrainer(LayoutPtr layout)
    : layout_(std::move(layout)), gradient_(layout_), optimizer_(layout_) {}

void PlainTrainer::Train(const Stage& stage, const Objective& objective, ConstVectorView anchor,
                         ConstVectorView v, const std::vector<Numbers>& references, VectorView w,
                         uint32_t examples, uint64_t rows, StageOutcome& outcome) {
  const training::Pieces pieces = training::TrainablePieces(*layout_, stage.trainable.get());
  FullBatch batch(objective, layout_, examples, stage.trainable.get());
  optimizer_.Start(stage.local, stage.correction.mu);
  outcome.steps =
      stage.local.steps > 0 ? stage.local.steps : uint64_t{stage.local.epochs} * examples;
  DispatchDType(layout_->dtype(), [&]<typename T>(T) {
    for (uint64_t k = 0; k < outcome.steps; ++k) {
      SetNumbers(GradientOf(stage, objective, *layout_, references, NumbersOf(w)),
                 gradient_.view());
      const bool hooked = stage.hooks != nullptr && stage.hooks->correct;
      if (hooked) {
        const double scale = training::ClipFactor(stage.local.clip_norm,
                                                  training::NormOf<T>(gradient_.As<T>(), pieces));
        for (T& g : gradient_.As<T>()) g *= static_cast<T>(scale);
        stage.hooks->correct(w, gradient_.view(), batch);
      }
      optimizer_.StepEach<T>({{.step = k + 1, .pieces = pieces}},
                             {.weights = w.As<T>(),
                              .gradient = gradient_.As<T>(),
                              .anchor = anchor.As<T>(),
                              .v = v.empty() ? std::span<const T>() : v.As<T>()},
                             /*clipped=*/hooked);
      outcome.rate_sum += stage.local.lr;
      MoveBuffers(examples, stage.trainable.get(), w);
    }
  });
  outcome.a_norm1 = optimizer_.a_norm1();
  const uint64_t size = stage.local.batch_size;
  const double a_batch = static_cast<double>(size > 0 ? std::min(size, rows) : rows);
  const double forward = kForward * static_cast<double>(references.size());
  passed_ += a_batch * (static_cast<double>(outcome.steps) * (1 + forward) +
                        static_cast<double>(batch.asked()));
}

absl::StatusOr<std::vector<StageOutcome>> PlainTrainer::Run(const training::LocalPlan& plan,
                                                            const Objective& objective,
                                                            uint32_t examples, uint64_t rows) {
  if (rows == 0) rows = examples;
  passed_ = 0;
  ends_.clear();
  ends_.reserve(plan.stages.size());
  std::vector<StageOutcome> outcomes;
  models::ModelSpec spec;
  spec.layout = layout_;
  training::StageSequence stages(plan);
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const Stage* next, stages.Next(outcomes));
    if (next == nullptr) return outcomes;
    const Stage& stage = *next;
    if (stage.hooks != nullptr && stage.hooks->loss) {
      return absl::UnimplementedError(
          "a stage has a loss of its own, which needs LibTorch: test its rule with another loss, "
          "and "
          "the loss by itself");
    }
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView start, training::Resolve(stage.start, outcomes));
    MACAW_ASSIGN_OR_RETURN(
        const ConstVectorView anchor,
        training::Resolve(stage.correction.anchor.value_or(stage.start), outcomes));
    ConstVectorView v;
    if (!stage.correction.v.empty()) {
      MACAW_ASSIGN_OR_RETURN(v, training::SumOf(stage.correction.v, outcomes, spec, v_sum_));
    }
    std::vector<Numbers> references;
    for (const training::Point& point : stage.references) {
      MACAW_ASSIGN_OR_RETURN(const ConstVectorView at, training::Resolve(point, outcomes));
      references.push_back(NumbersOf(at));
    }
    StageOutcome outcome;
    outcome.examples = examples;
    outcome.sums = {double(examples), examples * objective.Loss(NumbersOf(start))};
    ends_.push_back(FlatVector::CopyOf(start, layout_));
    const VectorView end = ends_.back().view();
    if (stage.kind == StageKind::kTrain) {
      Train(stage, objective, anchor, v, references, end, examples, rows, outcome);
    } else if (stage.kind == StageKind::kGradient) {
      std::memset(end.bytes.data(), 0, end.bytes.size());
      SetNumbers(GradientOf(stage, objective, *layout_, references, NumbersOf(start)), end);
    }
    if (stage.kind == StageKind::kGradient) passed_ += static_cast<double>(rows);
    if (stage.kind == StageKind::kLoss) passed_ += kForward * static_cast<double>(rows);
    if (stage.kind != StageKind::kLoss) outcome.end = end;
    outcomes.push_back(outcome);
  }
}

}  // namespace macaw::algorithms
