#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "algorithms/api/algorithm.h"

namespace macaw::algorithms {

// A client half around another one. It forwards every call; a decorator overrides what it changes.
// Threads: as ClientAlgorithm, all slots at once.
//
// Of several decorators the outermost sees the result last: Attacked(Private(Compressed(rule))).
// One that changes what an honest client sends tells the half that it is around
// (ClientAlgorithm::Sent).
class DecoratedClient : public ClientAlgorithm {
 public:
  explicit DecoratedClient(std::unique_ptr<ClientAlgorithm> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return inner_->Prepare(context, workspace);
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    return inner_->Continue(context, outcomes, workspace);
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    return inner_->Conclude(context, outcomes, workspace);
  }
  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    return inner_->Sent(context, result, workspace);
  }
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return inner_->EvaluationPoint(context, workspace);
  }

 protected:
  const ClientAlgorithm& inner() const { return *inner_; }

 private:
  const std::unique_ptr<ClientAlgorithm> inner_;
};

// A server half around another one. It forwards every call. One thread, as ServerAlgorithm.
class DecoratedServer : public ServerAlgorithm {
 public:
  explicit DecoratedServer(std::unique_ptr<ServerAlgorithm> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    return inner_->Configure(context);
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    return inner_->Apply(context, std::move(aggregate));
  }
  ConstVectorView Model() const override { return inner_->Model(); }
  ConstVectorView Result() const override { return inner_->Result(); }
  std::vector<ConstVectorView> MoreModels() const override { return inner_->MoreModels(); }
  ServerState Save() const override { return inner_->Save(); }
  absl::Status Load(const ServerState& state) override { return inner_->Load(state); }
  absl::Status ForgetStates() override { return inner_->ForgetStates(); }
  MadeUp MakeUp(const aggregation::Aggregate& aggregate) const override {
    return inner_->MakeUp(aggregate);
  }

 protected:
  ServerAlgorithm& inner() { return *inner_; }
  const ServerAlgorithm& inner() const { return *inner_; }

 private:
  const std::unique_ptr<ServerAlgorithm> inner_;
};

}  // namespace macaw::algorithms
