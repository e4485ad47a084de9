#include "algorithms/robust/reported_weights.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/api/reported_weight.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

const LayoutPtr& WeightLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = kWeightChannel, .shape = {1}, .group = Group::kBuffer}}, DType::kF64));
  return layout;
}

// FedAvg's client, which also says its weight.
class ReportingClient final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    const VectorView weight = workspace.Vector(WeightLayout());
    weight.As<double>()[0] = context.weight;
    result.up.push_back({kWeightChannel, ConstVectorView(weight)});
    return result;
  }
};

}  // namespace

bool IsWeighted(const Setup& setup) { return setup.GetOr<bool>("weighted", false); }

void TakeWeights(const Updates& reported, Arrived& arrived) {
  Updates weighed;
  for (auto& [client, update] : arrived.updates) {
    const auto found = std::ranges::lower_bound(reported, client, {}, &Updates::value_type::first);
    if (found == reported.end() || found->first != client) continue;
    const double weight = found->second.As<double>()[0];
    if (!(weight > 0)) continue;
    arrived.weights.push_back(weight);
    weighed.emplace_back(client, std::move(update));
  }
  arrived.updates = std::move(weighed);
}

Description WithReportedWeights(Description rule) {
  rule.parameters.push_back({.name = "weighted",
                             .default_value = false,
                             .help = "whether an update weighs as much as its client says that it "
                                     "does under cohort.weight, as in FedAvg; false: all alike"});
  rule.notes = [notes = std::move(rule.notes)](const Setup& setup) {
    return IsWeighted(setup) || !notes ? std::vector<std::string>() : notes(setup);
  };
  rule.schema = [inner = std::move(rule.schema)](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, inner(setup));
    if (!IsWeighted(setup)) return schema;
    schema.up.push_back({.name = kWeightChannel,
                         .layout = WeightLayout(),
                         .reduction = aggregation::Reduction::kCollect,
                         .bound = 0x1p40});
    return schema;
  };
  rule.client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    if (IsWeighted(setup)) return std::make_unique<ReportingClient>(setup);
    return std::make_unique<DeltaClient>(setup);
  };
  return rule;
}

}  // namespace macaw::algorithms
