#include "tests/algorithms/quadratic_trainer.h"

#include "core/status.h"

namespace macaw::algorithms {
namespace {

using training::Stage;
using training::StageKind;
using training::StageOutcome;

template <typename T>
std::array<T, 2> Gradient(const Quadratic& f, std::span<const T> w) {
  std::array<T, 2> g{};
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j)
      g[i] += static_cast<T>(f.a[i][j]) * (w[j] - static_cast<T>(f.b[j]));
  }
  return g;
}

template <typename T>
double Loss(const Quadratic& f, std::span<const T> w) {
  const std::array<T, 2> g = Gradient(f, w);
  return 0.5 * (g[0] * (w[0] - f.b[0]) + g[1] * (w[1] - f.b[1]));
}

template <typename T>
void Train(const Stage& stage, const Quadratic& f, ConstVectorView start, ConstVectorView anchor,
           VectorView w_view, uint64_t steps) {
  const std::span<T> w = w_view.As<T>();
  std::copy_n(start.As<T>().begin(), 2, w.begin());
  FlatVector gradient = FlatVector(LayoutPtr(LayoutPtr(), w_view.layout));
  std::array<T, 2> momentum{};
  for (uint64_t k = 0; k < steps; ++k) {
    const std::array<T, 2> plain = Gradient<T>(f, w);
    const std::span<T> g = gradient.As<T>();
    std::copy(plain.begin(), plain.end(), g.begin());
    if (stage.hooks != nullptr) {
      stage.hooks->correct(w_view, gradient.view(), [&f](ConstVectorView point) {
        const auto there = Gradient<T>(f, point.As<T>());
        return std::vector<double>(there.begin(), there.end());
      });
    }
    for (size_t i = 0; i < 2; ++i) {
      if (stage.correction.mu != 0)
        g[i] += static_cast<T>(stage.correction.mu) * (w[i] - anchor.As<T>()[i]);
      if (stage.correction.v) g[i] += stage.correction.v->As<T>()[i];
      g[i] += static_cast<T>(stage.local.weight_decay) * w[i];
      momentum[i] = static_cast<T>(stage.local.momentum) * momentum[i] + g[i];
      if (stage.trainable == nullptr || stage.trainable->at(0))
        w[i] -= static_cast<T>(stage.local.lr) * momentum[i];
    }
  }
}

}  // namespace

LayoutPtr TwoNumbers(DType dtype) { return ParameterLayout::Scalars("x", 2, dtype); }

absl::StatusOr<std::vector<StageOutcome>> QuadraticTrainer::Run(const training::LocalPlan& plan,
                                                                const Quadratic& objective,
                                                                uint32_t examples) {
  ends_.clear();
  ends_.reserve(plan.stages.size());
  std::vector<StageOutcome> outcomes;
  for (const Stage& stage : plan.stages) {
    const auto resolve = [&](const training::Point& point) -> absl::StatusOr<ConstVectorView> {
      if (const auto* view = std::get_if<ConstVectorView>(&point)) return *view;
      const size_t earlier = std::get<training::StageEnd>(point).stage;
      if (earlier >= ends_.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("stage ", ends_.size(), " needs stage ", earlier, " before it"));
      }
      return ConstVectorView(ends_[earlier].view());
    };
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView start, resolve(stage.start));
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView anchor,
                           resolve(stage.correction.anchor.value_or(stage.start)));
    StageOutcome outcome;
    outcome.examples = examples;
    ends_.emplace_back(layout_);
    const VectorView end = ends_.back().view();
    DispatchDType(layout_->dtype(), [&]<typename T>(T) {
      outcome.sums = {double(examples), examples * Loss<T>(objective, start.As<T>())};
      if (stage.kind == StageKind::kTrain) {
        outcome.steps =
            stage.local.steps > 0 ? stage.local.steps : uint64_t{stage.local.epochs} * examples;
        outcome.rate_sum = static_cast<double>(outcome.steps) * stage.local.lr;
        Train<T>(stage, objective, start, anchor, end, outcome.steps);
      } else if (stage.kind == StageKind::kGradient) {
        const std::array<T, 2> g = Gradient<T>(objective, start.As<T>());
        std::copy(g.begin(), g.end(), end.As<T>().begin());
      }
    });
    if (stage.kind != StageKind::kLoss) outcome.end = end;
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace macaw::algorithms
