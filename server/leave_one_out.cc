#include "server/leave_one_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "algorithms/api/reported_weight.h"
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

const algorithms::MadeUp::OnChannel* LieOn(const std::string& channel,
                                           const algorithms::MadeUp& made_up) {
  const auto found = made_up.channels.find(channel);
  return found == made_up.channels.end() ? nullptr : &found->second;
}

// What a client has sent on a channel that collects.
const FlatVector& SentBy(ClientId client, const FlatVector& collected, const std::string& channel,
                         const algorithms::MadeUp& made_up) {
  const algorithms::MadeUp::OnChannel* const lie = LieOn(channel, made_up);
  return lie != nullptr && made_up.by(client) ? lie->vector : collected;
}

// The weights of clients' vectors on the channels that collect: those that they have reported where
// the rule has asked (algorithms/robust/reported_weights.h), and else 1.
class CollectedWeights {
 public:
  CollectedWeights(const aggregation::Aggregate& aggregate, const algorithms::MadeUp& made_up) {
    const auto channel = std::ranges::find(aggregate.channels, algorithms::kWeightChannel,
                                           &aggregation::AggregatedChannel::name);
    if (channel == aggregate.channels.end()) return;
    for (const auto& [client, summed] : channel->collected) {
      const FlatVector& weight = SentBy(client, summed, channel->name, made_up);
      if (weight.layout()->dtype() == DType::kF64 && weight.layout()->size() > 0)
        reported_[client] = std::max(0.0, weight.As<double>()[0]);
    }
  }
  double Of(ClientId client) const {
    const auto found = reported_.find(client);
    return found != reported_.end() ? found->second : reported_.empty() ? 1 : 0;
  }
  double OfAll(const aggregation::AggregatedChannel& channel) const {
    double sum = 0;
    for (const auto& [client, vector] : channel.collected) sum += Of(client);
    return sum;
  }

 private:
  std::map<ClientId, double> reported_;
};

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
  made_up_ = {};
  order_ = order;
  before_ = std::move(before);
}

std::vector<FlatVector> LeaveOneOut::DirectionsOf(const aggregation::Aggregate& aggregate) const {
  const CollectedWeights weights(aggregate, made_up_);
  std::vector<FlatVector> directions;
  for (const ChannelSpec& spec : compared_) {
    FlatVector& direction = directions.emplace_back();
    const auto channel =
        std::ranges::find(aggregate.channels, spec.name, &aggregation::AggregatedChannel::name);
    if (channel == aggregate.channels.end()) continue;
    if (!channel->value.empty()) direction = channel->value.Clone();
    const double collected = weights.OfAll(*channel);
    for (const auto& [client, vector] : channel->collected) {
      if (direction.empty()) direction = FlatVector(vector.layout());
      const double part = collected > 0 ? weights.Of(client) : 1;
      algorithms::Axpy(part, SentBy(client, vector, spec.name, made_up_).view(), direction.view());
    }
    // Channels of sums and of means must have one scale.
    if (collected > 0) algorithms::Scale(1 / collected, direction.view());
    if (spec.reduction == aggregation::Reduction::kFixedSum && channel->weight > 0)
      algorithms::Scale(spec.divisor / channel->weight, direction.view());
  }
  return directions;
}

void LeaveOneOut::Compare(const aggregation::Aggregate& all) {
  made_up_ = twin_->MakeUp(all);
  mean_ = DirectionsOf(all);
  for (size_t c = 0; c < mean_.size(); ++c) {
    // Who has sent it is in the sum with zeros.
    const algorithms::MadeUp::OnChannel* const lie = LieOn(compared_[c].name, made_up_);
    if (lie != nullptr && lie->share > 0 && !mean_[c].empty())
      algorithms::Axpy(lie->share, lie->vector.view(), mean_[c].view());
  }
}

absl::StatusOr<std::vector<WithoutClient>> LeaveOneOut::Models(const ClientParts& parts,
                                                               const algorithms::Schema& schema,
                                                               uint64_t seed) {
  std::vector<WithoutClient> models;
  const auto everybody = [](ClientId) { return true; };
  const auto without_one = [&](size_t n, ExactSum others) -> absl::Status {
    const ClientId client = parts.clients()[n];
    MACAW_ASSIGN_OR_RETURN(ExactSum own, parts.Alone(n));
    MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate alone, std::move(own).Report());
    algorithms::TakeMetrics(schema, order_.phase, alone);
    WithoutClient without{
        .client = client, .weight = WeightIn(alone), .cosine = CosineToMean(client, alone)};
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
  made_up_ = {};
  before_ = {};
  std::ranges::sort(models, {}, &WithoutClient::client);
  return models;
}

double LeaveOneOut::WeightIn(const aggregation::Aggregate& alone) const {
  const auto is_first = [&](const aggregation::AggregatedChannel& channel) {
    return compared_.empty() || channel.name == compared_.front().name;
  };
  const auto channel = std::ranges::find_if(alone.channels, is_first);
  if (channel == alone.channels.end()) return 0;
  return channel->collected.empty() ? channel->weight
                                    : CollectedWeights(alone, made_up_).OfAll(*channel);
}

double LeaveOneOut::CosineToMean(ClientId client, const aggregation::Aggregate& alone) const {
  std::vector<FlatVector> own = DirectionsOf(alone);
  for (size_t c = 0; made_up_.by && made_up_.by(client) && c < own.size(); ++c) {
    if (const auto* const lie = LieOn(compared_[c].name, made_up_); lie != nullptr)
      own[c] = lie->vector.Clone();
  }
  return DotOf(own, mean_) / std::sqrt(DotOf(own, own) * DotOf(mean_, mean_));
}

absl::Status CheckLeaveOneOut(const RunPlan& run, const algorithms::Description& algorithm,
                              const algorithms::Schema& schema) {
  if (run.evaluation.leave_one_out == 0) return absl::OkStatus();
  return CheckLeavesClientsOut(kLeaveOneOut, run, algorithm, schema);
}

}  // namespace macaw::server
