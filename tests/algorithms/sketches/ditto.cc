#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "tests/algorithms/sketches/sketches.h"

// Ditto: Li, Hu, Beirami, Smith, ICML 2021, algorithm 1.

namespace macaw::algorithms::sketches {
namespace {

class DittoClient final : public DeltaClient {
 public:
  explicit DittoClient(const Setup& setup)
      : DeltaClient(setup), lambda_(setup.Get<double>("lambda")) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::Stage personal = LocalWork(context, workspace);
    personal.start = PersonalModel(context);
    personal.correction = {.mu = lambda_, .anchor = context.model()};
    return training::LocalPlan{{LocalWork(context, workspace), personal}};
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    absl::StatusOr<ClientResult> result = DeltaClient::Conclude(context, outcomes, workspace);
    if (result.ok()) result->state = {outcomes[1].end};
    return result;
  }

  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace&) const override {
    return training::Point(PersonalModel(context));
  }

 private:
  static ConstVectorView PersonalModel(const ClientContext& context) {
    return context.first_turn ? context.model() : context.state[0];
  }
  const double lambda_;
};

}  // namespace

Description Ditto() {
  Description ditto = FedAvg();
  ditto.name = "ditto";
  ditto.parameters.push_back({.name = "lambda", .default_value = 1.0, .minimum = 0});
  ditto.schema = [](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"personal", setup.layout}};
    return schema;
  };
  ditto.client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return std::make_unique<DittoClient>(setup);
  };
  return ditto;
}

}  // namespace macaw::algorithms::sketches
