#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/description.h"
#include "algorithms/kept_state.h"

namespace macaw::algorithms {

// The two halves that most rules share: clients train and send y_i − x, and the server adds the
// mean. A rule that differs in one place overrides that place; a rule that differs in more derives
// from the interfaces.

// One channel down (the model) and one up (Δ). The mean of Δ is weighted by the run's weight
// policy; it is a plain mean if clients are already drawn in proportion to those weights.
Schema MeanDeltaSchema(const Setup& setup);

// server_lr (η_g) and server_lr_schedule, which MeanDeltaServer reads. If a description leaves them
// out, they are 1 and constant.
std::vector<ParameterSpec> ServerRateParameters();
// update_clip, which DeltaClient reads: Δ_i ← Δ_i·min(1, C/‖Δ_i‖), before the mean; 0: no clipping.
// The client's worker applies it, so it does not protect against a malicious worker.
ParameterSpec UpdateClipParameter();

// For Description::check. NeedsSgd refuses local optimizers other than SGD, for rules whose formula
// is of SGD's steps. The other refuses Poisson sampling, for rules that
// average over the clients that came.
absl::Status NeedsSgd(const Setup& setup);
absl::Status NeedsPlannedCohort(const Setup& setup);
// For ClientAlgorithm::Conclude of rules that divide by the steps: refuses those of an owner's
// program that says that they are not SGD's.
absl::Status NeedsStepsOfSgd(const training::StageOutcome& outcome);
// For Description::notes of a rule that uses a plain mean over clients where FedAvg's is weighted.
// The note says that the objective differs, and `remedy`, what to set instead. Empty if the run's
// weights are equal anyway.
std::vector<std::string> PlainMeanNote(const Setup& setup, absl::string_view remedy);
// The same of a rule that has no mean, but counts or judges clients without their sizes.
std::vector<std::string> AlikeNote(const Setup& setup, absl::string_view remedy);

// Refuses local.clip = "corrected", for rules that compute a client's gradient from its steps.
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
  // The local work. A rule that changes the local objective overrides this.
  virtual training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const;
  // The loss over all rows at the local work's start.
  training::Stage LossAtStart(const ClientContext& context, Workspace& workspace) const;
  // y_i − x, clipped if the run asks for it.
  VectorView Delta(const ClientContext& context, ConstVectorView end, Workspace& workspace) const;
  // The same times `factor`, for rules that only send it: described, unless it must be clipped.
  std::variant<ConstVectorView, Displacement> Update(const ClientContext& context,
                                                     const training::EndVector& end,
                                                     Workspace& workspace, double factor = 1) const;

  const LayoutPtr layout_;  // the model's

 private:
  const double update_clip_;  // 0: no clipping
};

// For ClientAlgorithm::Sent of a rule whose state item moves by `factor` times what the client
// sends on a channel: makes the item what it was before the turn and that step. Buffers become
// zero.
absl::Status FollowSent(const ClientContext& context, absl::string_view item,
                        absl::string_view channel, double factor, ClientResult& result,
                        Workspace& workspace);

// Owns x and does x ← x + Step(Δ̄) once per round, with Δ̄ the cohort's result on the channel
// `mean`. Buffers (batch-norm statistics) change by the plain mean of the clients' changes,
// whatever Step does with parameters. One thread.
class MeanDeltaServer : public ServerAlgorithm {
 public:
  MeanDeltaServer(const Setup& setup, FlatVector model, std::string mean = "delta");

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}};
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override;
  ConstVectorView Model() const final { return model_; }
  ServerState Save() const final { return kept_.Save(); }
  absl::Status Load(const ServerState& state) final { return kept_.Load(state); }

 protected:
  // x ← x + η_g·Δ̄. A server optimizer (FedAvgM, FedAdam) overrides it: it keeps its moments and
  // moves `model` by them. Not called if the mean has no contributions; but with Poisson sampling,
  // where Σ/(q·W) is then zero, it is called with Δ̄ = 0.
  virtual void Step(double server_lr, ConstVectorView mean_delta, VectorView model);
  // Applies the mean: Step for the parameters, the mean itself for the buffers.
  absl::Status Move(Round round, const FlatVector& mean_delta);

  KeptState kept_;  // a rule adds what it keeps besides the model

 private:
  const std::string mean_;  // channel
  const ServerRate rate_;
  const double planned_;  // the expected weight of the cohort, if the mean divides by it; else 0
  const LayoutPtr layout_;
  VectorView model_;  // x
};

}  // namespace macaw::algorithms
