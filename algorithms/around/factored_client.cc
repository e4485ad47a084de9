#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class FactoredClient final : public DecoratedClient {
 public:
  FactoredClient(std::unique_ptr<ClientAlgorithm> inner, Factoring factoring)
      : DecoratedClient(std::move(inner)), factoring_(std::move(factoring)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    double dropped = 0, whole = 0;
    std::vector<UpVector> factors;
    for (const FactoredChannel& channel : factoring_.channels) {
      const auto up = std::ranges::find(result.up, channel.spec.name, &UpVector::name);
      if (up == result.up.end()) continue;  // whoever reads the result reports it
      MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> value,
                             OnHost({&channel.spec, 1}, {&up->value, 1}, workspace));
      ConstVectorView matrices = value[0];
      if (factoring_.residual) {
        const VectorView sum = workspace.Vector(channel.spec.layout);
        Copy(matrices, sum);
        Add(context.State(ResidualOf(channel.spec.name)), sum);
        CopyBuffers(matrices, sum);
        matrices = sum;
      }
      const codecs::Factor which = FactorIn(context.round);
      const ConstVectorView basis = context.Down(BasisOf(channel.spec.name));
      const VectorView factor = workspace.Vector(channel.form.factor());
      channel.form.Project(matrices, which, basis, factor);
      const VectorView sent = workspace.Vector(channel.spec.layout);
      Copy(matrices, sent);
      channel.form.Expand(which, factor, basis, sent);
      const VectorView kept = workspace.Vector(channel.spec.layout);
      Subtract(matrices, sent, kept);
      ZeroBuffers(kept);
      dropped += SquaredNorm(kept);
      whole += SquaredNorm(matrices);
      if (factoring_.residual)
        result.state.push_back({ResidualOf(channel.spec.name), ConstVectorView(kept)});
      up->value = ConstVectorView(sent);  // for the rule
      factors.push_back({FactorOf(channel.spec.name), ConstVectorView(factor)});
      if (channel.form.rest() == nullptr) continue;
      const VectorView rest = workspace.Vector(channel.form.rest());
      channel.form.TakeRest(sent, rest);
      factors.push_back({RestOf(channel.spec.name), ConstVectorView(rest)});
    }
    MACAW_RETURN_IF_ERROR(inner().Sent(context, result, workspace));
    for (const FactoredChannel& channel : factoring_.channels)
      std::erase_if(result.up, [&](const UpVector& up) { return up.name == channel.spec.name; });
    std::ranges::move(factors, std::back_inserter(result.up));
    const double error = whole == 0 ? 0 : std::fmin(std::sqrt(dropped / whole), kMostError);
    result.metrics.emplace_back(kUpdateErrorMetric, error);
    return result;
  }

 private:
  const Factoring factoring_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeFactoredClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    Factoring factoring) {
  return std::make_unique<FactoredClient>(std::move(inner), std::move(factoring));
}

}  // namespace macaw::algorithms
