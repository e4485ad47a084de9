#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/frozen.h"
#include "core/status.h"
#include "training/api/hooks.h"

namespace macaw::algorithms {
namespace {

using training::Point;
using training::Stage;
using training::StageOutcome;

// A hook of the rule sees its own tensors, and asks for gradients at points that have no others.
class PartOfAStep final : public training::StepGradients {
 public:
  PartOfAStep(const ParameterGroup& trained, VectorView point, VectorView gradient)
      : trained_(trained), point_(point), gradient_(gradient) {}

  // Before each call of the hook.
  void Begin(training::StepGradients& step) { step_ = &step; }
  ConstVectorView GradientAt(ConstVectorView point) override {
    trained_.Insert(point, point_);
    trained_.Extract(step_->GradientAt(point_), gradient_);
    return gradient_;
  }
  ConstVectorView GradientAtOwn(VectorView point) override {
    trained_.Insert(point, point_);
    trained_.Extract(step_->GradientAtOwn(point_), gradient_);
    trained_.Extract(point_, point);
    return gradient_;
  }

 private:
  const ParameterGroup& trained_;
  const VectorView point_;     // of the whole model; its frozen tensors have their values
  const VectorView gradient_;  // of the part
  training::StepGradients* step_ = nullptr;
};

// A client's turn in the view of the rule.
struct InnerContext {
  ClientContext context;
  std::vector<ConstVectorView> broadcast;
};

class FrozenClient final : public DecoratedClient {
 public:
  FrozenClient(std::unique_ptr<ClientAlgorithm> inner, Schema rule, const ParameterGroup& trained,
               LayoutPtr whole)
      : DecoratedClient(std::move(inner)),
        rule_(std::move(rule)),
        trained_(trained),
        whole_(std::move(whole)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    const InnerContext inside = Inside(context, workspace);
    MACAW_ASSIGN_OR_RETURN(training::LocalPlan plan, inner().Prepare(inside.context, workspace));
    return OfTheWhole(std::move(plan), inside, context, workspace);
  }

  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    const InnerContext inside = Inside(context, workspace);
    MACAW_ASSIGN_OR_RETURN(const std::vector<StageOutcome> seen, OfThePart(outcomes, workspace));
    MACAW_ASSIGN_OR_RETURN(training::LocalPlan plan,
                           inner().Continue(inside.context, seen, workspace));
    return OfTheWhole(std::move(plan), inside, context, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const InnerContext inside = Inside(context, workspace);
    MACAW_ASSIGN_OR_RETURN(const std::vector<StageOutcome> seen, OfThePart(outcomes, workspace));
    return inner().Conclude(inside.context, seen, workspace);
  }

  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    const InnerContext inside = Inside(context, workspace);
    return inner().Sent(inside.context, result, workspace);
  }

  absl::StatusOr<Point> EvaluationPoint(const ClientContext& context,
                                        Workspace& workspace) const override {
    const InnerContext inside = Inside(context, workspace);
    MACAW_ASSIGN_OR_RETURN(const Point point, inner().EvaluationPoint(inside.context, workspace));
    return OfTheWhole(point, inside, context, workspace);
  }

 private:
  InnerContext Inside(const ClientContext& context, Workspace& workspace) const {
    InnerContext inner{context, {context.broadcast.begin(), context.broadcast.end()}};
    const VectorView model = workspace.Vector(trained_.layout());
    trained_.Extract(context.model(), model);
    inner.broadcast[0] = model;
    inner.context.broadcast = inner.broadcast;
    inner.context.schema = &rule_;
    return inner;
  }

  // The rule's view of what its stages left.
  absl::StatusOr<std::vector<StageOutcome>> OfThePart(std::span<const StageOutcome> outcomes,
                                                      Workspace& workspace) const {
    std::vector<StageOutcome> seen(outcomes.begin(), outcomes.end());
    for (StageOutcome& outcome : seen) {
      if (outcome.end.empty()) continue;
      MACAW_RETURN_IF_ERROR(outcome.end.Fetch());
      const VectorView part = workspace.Vector(trained_.layout());
      trained_.Extract(outcome.end, part);
      outcome.end = part;
    }
    return seen;
  }

  absl::StatusOr<training::LocalPlan> OfTheWhole(training::LocalPlan plan,
                                                 const InnerContext& inner,
                                                 const ClientContext& context,
                                                 Workspace& workspace) const {
    for (Stage& stage : plan.stages) {
      MACAW_ASSIGN_OR_RETURN(stage.start, OfTheWhole(stage.start, inner, context, workspace));
      if (std::optional<Point>& anchor = stage.correction.anchor; anchor.has_value()) {
        MACAW_ASSIGN_OR_RETURN(anchor, OfTheWhole(*anchor, inner, context, workspace));
      }
      for (training::Term& term : stage.correction.v) {
        MACAW_ASSIGN_OR_RETURN(term.point, OfTheWhole(term.point, inner, context, workspace));
      }
      for (Point& reference : stage.references) {
        MACAW_ASSIGN_OR_RETURN(reference, OfTheWhole(reference, inner, context, workspace));
      }
      MACAW_ASSIGN_OR_RETURN(stage.trainable, Trainable(stage.trainable.get()));
      if (stage.hooks != nullptr) {
        MACAW_ASSIGN_OR_RETURN(stage.hooks, OfTheWhole(*stage.hooks, context, workspace));
      }
    }
    return plan;
  }

  // The same point of the whole model.
  absl::StatusOr<Point> OfTheWhole(const Point& point, const InnerContext& inner,
                                   const ClientContext& context, Workspace& workspace) const {
    const auto* part = std::get_if<ConstVectorView>(&point);
    if (part == nullptr) return point;  // the end of a stage
    if (!SameLayout(part->layout, trained_.layout().get())) {
      return absl::InternalError(
          absl::StrCat(rule_.whose, ": a stage names a vector of another layout than its model's"));
    }
    if (part->bytes.data() == inner.context.model().bytes.data()) return Point(context.model());
    return Point(ConstVectorView(Whole(*part, context, workspace)));
  }
  VectorView Whole(ConstVectorView part, const ClientContext& context, Workspace& workspace) const {
    const VectorView whole = workspace.Vector(whole_);
    Copy(context.model(), whole);
    trained_.Insert(part, whole);
    return whole;
  }

  // The entries of the whole model that move; null: all of the rule's do.
  absl::StatusOr<ParameterGroup::Mask> Trainable(const std::vector<bool>* part) const {
    if (part == nullptr) return trained_.inside();
    if (part->size() != trained_.layout()->entries().size()) {
      return absl::InternalError(absl::StrCat(rule_.whose, ": a stage names ", part->size(),
                                              " trainable tensors, its model has ",
                                              trained_.layout()->entries().size()));
    }
    std::vector<bool> whole = *trained_.inside();
    for (size_t i = 0, next = 0; i < whole.size(); ++i)
      if (whole[i]) whole[i] = (*part)[next++];
    return std::make_shared<const std::vector<bool>>(std::move(whole));
  }

  absl::StatusOr<std::shared_ptr<const training::Hooks>> OfTheWhole(const training::Hooks& hooks,
                                                                    const ClientContext& context,
                                                                    Workspace& workspace) const {
    if (hooks.loss) {
      return absl::UnimplementedError(absl::StrCat(
          rule_.whose,
          " has a loss of its own, which takes all tensors of the model: leave model.frozen out"));
    }
    training::Hooks whole{.representations = hooks.representations};
    if (hooks.correct) {
      const VectorView w = workspace.Vector(trained_.layout()),
                       g = workspace.Vector(trained_.layout());
      const VectorView point = workspace.Vector(whole_);
      Copy(context.model(), point);
      const auto step =
          std::make_shared<PartOfAStep>(trained_, point, workspace.Vector(trained_.layout()));
      whole.correct = [this, correct = hooks.correct, w, g, step](
                          ConstVectorView at, VectorView gradient,
                          training::StepGradients& gradients) {
        trained_.Extract(at, w);
        trained_.Extract(gradient, g);
        step->Begin(gradients);
        correct(w, g, *step);
        trained_.Insert(g, gradient);
      };
    }
    return std::make_shared<const training::Hooks>(std::move(whole));
  }

  const Schema rule_;
  const ParameterGroup trained_;
  const LayoutPtr whole_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeFrozenClient(std::unique_ptr<ClientAlgorithm> inner,
                                                  Schema rule, const ParameterGroup& trained,
                                                  LayoutPtr whole) {
  return std::make_unique<FrozenClient>(std::move(inner), std::move(rule), trained,
                                        std::move(whole));
}

}  // namespace macaw::algorithms
