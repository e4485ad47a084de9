#include "server/leave_one_out.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/factored.h"
#include "core/status.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {
namespace {

using aggregation::ChannelSpec;
using aggregation::ExactSum;

// The channels up that have the model's tensors: the rule's own, or the factors that stand for
// them. What an attack sends beside them is not the client's update, whatever its layout.
std::vector<ChannelSpec> ComparedChannels(const algorithms::Schema& schema) {
  const LayoutPtr& model = algorithms::SentModelLayout(schema);
  const auto beside = [&](const std::string& name) {
    return std::ranges::any_of(schema.up, [&](const ChannelSpec& other) {
      return name == algorithms::EachOf(other.name) || name == algorithms::SquaresOf(other.name);
    });
  };
  const auto of_factors = [&](const std::string& name) {
    return std::ranges::any_of(schema.down, [&](const algorithms::DownChannel& basis) {
      absl::string_view channel = basis.name;
      return absl::ConsumeSuffix(&channel, algorithms::BasisOf("")) &&
             (name == algorithms::FactorOf(channel) || name == algorithms::RestOf(channel));
    });
  };
  std::vector<ChannelSpec> compared;
  for (const ChannelSpec& channel : schema.up) {
    if (channel.reduction == aggregation::Reduction::kMax || beside(channel.name)) continue;
    if (algorithms::SameLayout(channel.layout.get(), model.get()) || of_factors(channel.name))
      compared.push_back(channel);
  }
  return compared;
}

// Of all channels together.
double DotOf(const std::vector<FlatVector>& a, const std::vector<FlatVector>& b) {
  double sum = 0;
  for (size_t c = 0; c < a.size(); ++c) {
    if (!a[c].empty() && !b[c].empty()) sum += algorithms::Dot(a[c].view(), b[c].view());
  }
  return sum;
}

}  // namespace

absl::StatusOr<LeaveOneOut> LeaveOneOut::Make(const algorithms::Description& algorithm,
                                              const algorithms::Schema& schema,
                                              const algorithms::Setup& setup, FlatVector initial,
                                              uint32_t every) {
  LeaveOneOut without;
  without.every_ = every;
  without.compared_ = ComparedChannels(schema);
  MACAW_ASSIGN_OR_RETURN(without.twin_, algorithm.server(setup, std::move(initial)));
  return without;
}

void LeaveOneOut::Open(const PhaseOrder& order, algorithms::ServerState before) {
  mean_.clear();
  order_ = order;
  before_ = std::move(before);
}

std::vector<FlatVector> LeaveOneOut::DirectionsOf(const aggregation::Aggregate& aggregate) const {
  std::vector<FlatVector> directions;
  for (const ChannelSpec& spec : compared_) {
    FlatVector& direction = directions.emplace_back();
    const auto channel =
        std::ranges::find(aggregate.channels, spec.name, &aggregation::AggregatedChannel::name);
    if (channel == aggregate.channels.end()) continue;
    if (!channel->value.empty()) direction = channel->value.Clone();
    for (const auto& [client, vector] : channel->collected) {
      if (direction.empty()) {
        direction = vector.Clone();
      } else {
        algorithms::Add(vector.view(), direction.view());
      }
    }
    // Channels of sums and of means must have one scale.
    const auto collected = static_cast<double>(channel->collected.size());
    if (collected > 1) algorithms::Scale(1 / collected, direction.view());
    if (spec.reduction == aggregation::Reduction::kFixedSum && channel->weight > 0)
      algorithms::Scale(spec.divisor / channel->weight, direction.view());
  }
  return directions;
}

void LeaveOneOut::Compare(const aggregation::Aggregate& all) { mean_ = DirectionsOf(all); }

absl::StatusOr<std::vector<WithoutClient>> LeaveOneOut::Models(const ClientParts& parts,
                                                               const algorithms::Schema& schema,
                                                               uint64_t seed) {
  std::vector<WithoutClient> models;
  const auto everybody = [](ClientId) { return true; };
  const auto without_one = [&](size_t n, ExactSum others) -> absl::Status {
    const ClientId client = parts.clients()[n];
    WithoutClient without{.client = client, .weight = parts.WeightOf(n)};
    MACAW_ASSIGN_OR_RETURN(ExactSum alone, parts.Alone(n));
    MACAW_ASSIGN_OR_RETURN(without.cosine, CosineToMean(std::move(alone), schema));
    MACAW_RETURN_IF_ERROR(twin_->Load(before_));
    MACAW_RETURN_IF_ERROR(
        ApplyWithout(*twin_, order_, std::move(others), schema, seed, kLeaveOneOut, client));
    const ConstVectorView model = twin_->Result();
    without.model = fleet::Blob::Of(fleet::EncodeVectors({&model, 1}));
    models.push_back(std::move(without));
    return absl::OkStatus();
  };
  MACAW_RETURN_IF_ERROR(parts.EachWithout(everybody, without_one));
  mean_.clear();
  before_ = {};
  std::ranges::sort(models, {}, &WithoutClient::client);
  return models;
}

absl::StatusOr<double> LeaveOneOut::CosineToMean(ExactSum alone,
                                                 const algorithms::Schema& schema) const {
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(alone).Report());
  algorithms::TakeMetrics(schema, order_.phase, aggregate);
  const std::vector<FlatVector> own = DirectionsOf(aggregate);
  return DotOf(own, mean_) / std::sqrt(DotOf(own, own) * DotOf(mean_, mean_));
}

absl::Status CheckLeaveOneOut(const RunPlan& run, const algorithms::Description& algorithm,
                              const algorithms::Schema& schema) {
  if (run.evaluation.leave_one_out == 0) return absl::OkStatus();
  return CheckLeavesClientsOut(kLeaveOneOut, run, algorithm, schema);
}

}  // namespace macaw::server
