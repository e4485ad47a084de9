#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "algorithms/around/residual_age.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class FactoredClient final : public DecoratedClient {
 public:
  FactoredClient(std::unique_ptr<ClientAlgorithm> inner, Factoring factoring)
      : DecoratedClient(std::move(inner)), factoring_(std::move(factoring)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (IsSecond(context)) return training::LocalPlan();
    return inner().Prepare(context, workspace);
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    if (IsSecond(context)) return training::LocalPlan();
    return inner().Continue(context, outcomes, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    Error error;
    if (IsSecond(context)) {
      ClientResult result;
      for (const FactoredChannel& channel : factoring_.channels)
        Factor(context, channel, context.State(factoring_.KeptOf(channel.spec.name)), result, error,
               workspace);
      result.metrics.emplace_back(kUpdateErrorMetric, error.Relative());
      return result;
    }
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    ClientResult factors;
    for (const FactoredChannel& channel : factoring_.channels) {
      const auto up = std::ranges::find(result.up, channel.spec.name, &UpVector::name);
      if (up == result.up.end()) continue;  // UpValues reports it
      MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> value,
                             OnHost({&channel.spec, 1}, {&up->value, 1}, workspace));
      const ConstVectorView matrices = WithResidual(context, channel, value[0], workspace);
      up->value = Factor(context, channel, matrices, factors, error, workspace);
    }
    if (!factoring_.two_phases) {
      MACAW_RETURN_IF_ERROR(inner().Sent(context, result, workspace));
      result.metrics.emplace_back(kUpdateErrorMetric, error.Relative());
    }
    for (const FactoredChannel& channel : factoring_.channels)
      std::erase_if(result.up, [&](const UpVector& up) { return up.name == channel.spec.name; });
    std::ranges::move(factors.up, std::back_inserter(result.up));
    std::ranges::move(factors.state, std::back_inserter(result.state));
    return result;
  }

 private:
  struct Error {
    double dropped = 0, whole = 0;
    double Relative() const {
      return whole == 0 ? 0 : std::fmin(std::sqrt(dropped / whole), kMostError);
    }
  };

  bool IsSecond(const ClientContext& context) const {
    return factoring_.two_phases && context.phase == kSecond;
  }

  ConstVectorView WithResidual(const ClientContext& context, const FactoredChannel& channel,
                               ConstVectorView value, Workspace& workspace) const {
    if (!factoring_.residual) return value;
    const VectorView sum = workspace.Vector(channel.spec.layout);
    Copy(value, sum);
    Axpy(PartThatStays(factoring_.residual_decay, context, channel.spec.name),
         context.State(factoring_.KeptOf(channel.spec.name)), sum);
    CopyBuffers(value, sum);
    return sum;
  }

  // Adds the factor of M to the result, and what the client keeps. Returns what is decoded of it:
  // M itself where that is known in the second phase only.
  ConstVectorView Factor(const ClientContext& context, const FactoredChannel& channel,
                         ConstVectorView matrices, ClientResult& result, Error& error,
                         Workspace& workspace) const {
    const codecs::Factor which = factoring_.Sent(context.round, context.phase);
    const ConstVectorView basis = context.Down(BasisOf(channel.spec.name));
    const VectorView factor = workspace.Vector(channel.form.factor());
    channel.form.Project(matrices, which, basis, factor);
    result.up.push_back({FactorOf(channel.spec.name), ConstVectorView(factor)});
    if (channel.form.rest() != nullptr && !IsSecond(context)) {
      const VectorView rest = workspace.Vector(channel.form.rest());
      channel.form.TakeRest(matrices, rest);
      result.up.push_back({RestOf(channel.spec.name), ConstVectorView(rest)});
    }
    if (factoring_.adapt > 0 && !IsSecond(context)) {
      result.up.push_back(
          {ErrorsOf(channel.spec.name), Errors(context, channel, matrices, workspace)});
    }
    if (factoring_.residual_decay < 1) KeepRound(context, channel.spec.name, result, workspace);
    const VectorView kept = workspace.Vector(channel.spec.layout);
    if (factoring_.two_phases && !IsSecond(context)) {
      Copy(matrices, kept);
      channel.form.ZeroRest(kept);  // it is sent in this phase
      result.state.push_back({factoring_.KeptOf(channel.spec.name), ConstVectorView(kept)});
      return matrices;
    }
    const VectorView sent = workspace.Vector(channel.spec.layout);
    Copy(matrices, sent);
    channel.form.Expand(which, factor, basis, sent);
    Subtract(matrices, sent, kept);
    ZeroBuffers(kept);
    error.dropped += SquaredNorm(kept);
    error.whole += SquaredNorm(matrices);
    if (factoring_.residual)
      result.state.push_back({factoring_.KeptOf(channel.spec.name), ConstVectorView(kept)});
    return sent;
  }

  // What each rank would leave out. Zeros in rounds that choose none.
  ConstVectorView Errors(const ClientContext& context, const FactoredChannel& channel,
                         ConstVectorView matrices, Workspace& workspace) const {
    const VectorView errors = workspace.Vector(channel.form.errors());
    Zero(errors);
    if (factoring_.Chooses(context.round)) {
      channel.form.Errors(matrices,
                          context.CommonRandom(absl::StrCat("update errors ", channel.spec.name)),
                          errors);
    }
    return errors;
  }

  const Factoring factoring_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeFactoredClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    Factoring factoring) {
  return std::make_unique<FactoredClient>(std::move(inner), std::move(factoring));
}

}  // namespace macaw::algorithms
