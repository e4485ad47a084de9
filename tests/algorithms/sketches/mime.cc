#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "tests/algorithms/quadratic_trainer.h"
#include "tests/algorithms/sketches/sketches.h"

// Mime with plain SGD as its base: Karimireddy et al., NeurIPS 2021, algorithm 1. Phase 0 collects
// the mean full gradient c at x; phase 1 steps along g(y; ζ) − g(x; ζ) + c, both gradients of one
// batch.

namespace macaw::algorithms::sketches {
namespace {

constexpr Phase kGradients{0};

class MimeClient final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    if (context.phase == kGradients) return ClientResult{.up = {outcomes[0].end}, .state = {}};
    return DeltaClient::Conclude(context, outcomes, workspace);
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    if (context.phase == kGradients) {
      stage.kind = training::StageKind::kGradient;
      return stage;
    }
    stage.correction.v = context.broadcast[1];  // c
    training::Hooks hooks;
    hooks.correct = [x = context.model()](ConstVectorView, VectorView g,
                                          const training::Hooks::GradientAt& gradient_at) {
      const std::vector<double> at_x = gradient_at(x);
      for (size_t i = 0; i < at_x.size(); ++i) g.As<double>()[i] -= at_x[i];
    };
    stage.hooks = std::make_shared<const training::Hooks>(std::move(hooks));
    return stage;
  }
};

class MimeServer final : public MeanDeltaServer {
 public:
  MimeServer(const Setup& setup, FlatVector model)
      : MeanDeltaServer(std::move(model), setup.Get<double>("server_lr")),
        gradient_(setup.layout) {}

  std::vector<ConstVectorView> Configure(Round, Phase) const override {
    return {Model(), gradient_.view()};
  }

  absl::StatusOr<AfterApply> Apply(Round round, Phase phase,
                                   aggregation::Aggregate aggregate) override {
    if (phase != kGradients) return MeanDeltaServer::Apply(round, phase, std::move(aggregate));
    if (aggregate.channels[0].value.empty()) return AfterApply::kRoundDone;
    gradient_ = std::move(aggregate.channels[0].value);
    return AfterApply::kNextPhase;
  }

 private:
  FlatVector gradient_;  // c: lives within a round, so it is not saved
};

}  // namespace

Description Mime() {
  Description mime = FedAvg();
  mime.name = "mime";
  mime.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.up[0].name = "gradient_then_delta";
    schema.down.push_back({"mean_gradient", setup.layout});
    return schema;
  };
  mime.server = [](const Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    return std::make_unique<MimeServer>(setup, std::move(model));
  };
  mime.client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return std::make_unique<MimeClient>(setup);
  };
  return mime;
}

}  // namespace macaw::algorithms::sketches
