#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// The two halves that most rules share: clients train and send y_i − x, the server adds the mean of
// what they sent. A rule that differs in one place overrides that place; one that differs in more
// derives from the interfaces.

// One channel down (the model) and one up: Δ, a mean weighted by the run's weight policy.
Schema MeanDeltaSchema(const Setup& setup);

// Trains once from x and sends Δ_i = y_i − x. Stateless and thread-safe.
class DeltaClient : public ClientAlgorithm {
 public:
  explicit DeltaClient(const Setup& setup) : layout_(setup.layout) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override;
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override;

 protected:
  // The local work; a rule that changes the objective changes the stage.
  virtual training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const;

  const LayoutPtr layout_;  // the model's
};

// Owns x and takes x ← x + Step(Δ̄) once a round. One thread.
class MeanDeltaServer : public ServerAlgorithm {
 public:
  MeanDeltaServer(FlatVector model, double server_lr);

  std::vector<ConstVectorView> Configure(Round, Phase) const override { return {Model()}; }
  absl::StatusOr<AfterApply> Apply(Round round, Phase phase,
                                   aggregation::Aggregate aggregate) override;
  ConstVectorView Model() const final { return model_.view(); }
  ServerState Save() const override;
  absl::Status Load(const ServerState& state) override;

 protected:
  // x ← x + η_g·Δ̄. A server optimizer (FedAvgM, FedAdam) keeps its moments and moves `model` by
  // them instead; it then also extends Save and Load. Not called when nobody contributed.
  virtual void Step(ConstVectorView mean_delta, VectorView model);

  const double server_lr_;  // η_g

 private:
  FlatVector model_;  // x
};

// Finds a vector of a saved state and checks its layout: what every Load begins with, so that it
// changes nothing before all of it fits. Errors name the vector.
absl::StatusOr<ConstVectorView> SavedVector(const ServerState& state, const std::string& name,
                                            const ParameterLayout& layout);

}  // namespace macaw::algorithms
