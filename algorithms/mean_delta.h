#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/registry.h"
#include "algorithms/kept_state.h"

namespace macaw::algorithms {

// The two halves that most rules share: clients train and send y_i − x, the server adds the mean of
// what they sent. A rule that differs in one place overrides that place; one that differs in more
// derives from the interfaces.

// One channel down (the model) and one up: Δ. Its mean is weighted by the run's weight policy; a
// plain mean where clients were drawn in proportion to those weights already.
Schema MeanDeltaSchema(const Setup& setup);

// server_lr (η_g) and server_lr_schedule, which MeanDeltaServer reads; 1 and constant where a
// description leaves them out.
std::vector<ParameterSpec> ServerRateParameters();
// update_clip, which DeltaClient reads: Δ_i ← Δ_i·min(1, C/‖Δ_i‖) before any mean; 0: none. It is
// applied by the client's worker, so it binds honest workers only.
ParameterSpec UpdateClipParameter();

// For Description::check. Refuses local optimizers other than SGD, for a rule whose formula counts
// the steps behind a displacement; Poisson cohorts, for one whose mean is over those who came.
absl::Status NeedsSgd(const Setup& setup);
absl::Status NeedsPlannedCohort(const Setup& setup);
// For Description::notes of a rule whose mean over clients is a plain one where FedAvg's is by
// weight: says that the objective is another one, and `remedy`, what to set instead; nothing where
// the run's weights are equal anyway.
std::vector<std::string> PlainMeanNote(const Setup& setup, absl::string_view remedy);

// Refuses local.clip = "corrected", for a rule that learns a client's gradient from its steps.
absl::Status NeedsGradientClip(const Setup& setup);

// η_g as a function of the round.
class ServerRate {
 public:
  explicit ServerRate(const Setup& setup);
  double At(Round round) const;

 private:
  double rate_;
  Schedule schedule_;
};

// Trains once from x and sends Δ_i = y_i − x. Stateless and thread-safe.
class DeltaClient : public ClientAlgorithm {
 public:
  explicit DeltaClient(const Setup& setup);

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override;
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override;

 protected:
  // The local work; a rule that changes the objective changes the stage.
  virtual training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const;
  // y_i − x, clipped where the run asks for it.
  VectorView Delta(const ClientContext& context, ConstVectorView end, Workspace& workspace) const;

  const LayoutPtr layout_;  // the model's

 private:
  const double update_clip_;  // 0: none
};

// Owns x and takes x ← x + Step(Δ̄) once a round. Buffers (batch-norm statistics) take the plain
// mean of their changes, whatever the step does with parameters. One thread.
class MeanDeltaServer : public ServerAlgorithm {
 public:
  MeanDeltaServer(const Setup& setup, FlatVector model);

  std::vector<ConstVectorView> Configure(Round, Phase) const override { return {Model()}; }
  absl::StatusOr<AfterApply> Apply(Round round, Phase phase,
                                   aggregation::Aggregate aggregate) override;
  ConstVectorView Model() const final { return model_; }
  ServerState Save() const final { return kept_.Save(); }
  absl::Status Load(const ServerState& state) final { return kept_.Load(state); }

 protected:
  // x ← x + η_g·Δ̄. A server optimizer (FedAvgM, FedAdam) keeps its moments and moves `model` by
  // them instead. Called without an update, Δ̄ = 0, when nobody contributed to a Poisson cohort,
  // whose Σ/(q·W) is then zero; not called when nobody contributed to a mean.
  virtual void Step(double server_lr, ConstVectorView mean_delta, VectorView model);
  // What Apply does with the mean: Step on the parameters, the mean itself on the buffers.
  absl::Status Move(Round round, const FlatVector& mean_delta);

  KeptState kept_;  // a rule adds what it keeps besides the model

 private:
  const ServerRate rate_;
  const double planned_;  // what the cohort weighs on average, where the mean divides by that; or 0
  const LayoutPtr layout_;
  VectorView model_;  // x
};

}  // namespace macaw::algorithms
