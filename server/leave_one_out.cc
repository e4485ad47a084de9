#include "server/leave_one_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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

// Whether something travels in a phase behind the first. What travels in all phases says nothing.
bool HasLaterPhases(const algorithms::Schema& schema) {
  const auto later = [](const auto& item) {
    return std::ranges::any_of(item.phases, [](Phase phase) { return phase != Phase(0); });
  };
  return std::ranges::any_of(schema.up, later) || std::ranges::any_of(schema.down, later) ||
         std::ranges::any_of(schema.metrics, later);
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

void LeaveOneOut::Open(const PhaseOrder& order, std::vector<aggregation::ChannelSpec> channels,
                       algorithms::ServerState before) {
  Drop();
  mean_.clear();
  order_ = order;
  channels_ = std::move(channels);
  before_ = std::move(before);
}

absl::Status LeaveOneOut::Add(ClientId client, ExactSum&& sum) {
  if (std::ranges::find(clients_, client) != clients_.end()) {
    return absl::InternalError(absl::StrCat("client ", client.value, " was added to round ",
                                            order_.round.value, " twice"));
  }
  // The part's bytes are those of an upload, of which a session may have two at a time.
  MACAW_ASSIGN_OR_RETURN(ExactSum own, SumOf({&sum, 1}));
  clients_.push_back(client);
  sums_.push_back(std::move(own));
  return absl::OkStatus();
}

absl::StatusOr<ExactSum> LeaveOneOut::SumOf(std::span<const ExactSum> sums) const {
  if (sums.empty()) return ExactSum::Make(channels_, order_.grid);
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer bytes, ExactSum::EncodeTogether(sums));
  return ExactSum::Decode(std::make_shared<const AlignedBuffer>(std::move(bytes)), channels_,
                          order_.grid);
}

absl::StatusOr<ExactSum> LeaveOneOut::Sum() const { return SumOf(sums_); }

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

absl::StatusOr<std::vector<WithoutClient>> LeaveOneOut::Models(const algorithms::Schema& schema,
                                                               uint64_t seed) {
  std::vector<WithoutClient> models;
  if (!sums_.empty()) {
    MACAW_ASSIGN_OR_RETURN(ExactSum nobody, SumOf({}));
    MACAW_RETURN_IF_ERROR(EachWithout(0, sums_.size(), std::move(nobody), schema, seed, models));
  }
  Drop();
  mean_.clear();
  before_ = {};
  std::ranges::sort(models, {}, &WithoutClient::client);
  return models;
}

absl::Status LeaveOneOut::EachWithout(size_t begin, size_t end, ExactSum others,
                                      const algorithms::Schema& schema, uint64_t seed,
                                      std::vector<WithoutClient>& models) {
  if (end - begin == 1) {
    MACAW_ASSIGN_OR_RETURN(WithoutClient model, Without(begin, std::move(others), schema, seed));
    models.push_back(std::move(model));
    return absl::OkStatus();
  }
  const size_t middle = begin + (end - begin) / 2;
  const std::span<const ExactSum> all(sums_);
  MACAW_ASSIGN_OR_RETURN(ExactSum right, SumOf(all.subspan(middle, end - middle)));
  MACAW_ASSIGN_OR_RETURN(ExactSum outside, SumOf({&others, 1}));
  MACAW_RETURN_IF_ERROR(right.Merge(std::move(outside)));
  MACAW_RETURN_IF_ERROR(EachWithout(begin, middle, std::move(right), schema, seed, models));
  MACAW_ASSIGN_OR_RETURN(ExactSum left, SumOf(all.subspan(begin, middle - begin)));
  MACAW_RETURN_IF_ERROR(left.Merge(std::move(others)));
  return EachWithout(middle, end, std::move(left), schema, seed, models);
}

absl::StatusOr<WithoutClient> LeaveOneOut::Without(size_t left_out, ExactSum others,
                                                   const algorithms::Schema& schema,
                                                   uint64_t seed) {
  const ClientId client = clients_[left_out];
  WithoutClient without{.client = client, .weight = sums_[left_out].weight()};
  MACAW_ASSIGN_OR_RETURN(without.cosine, CosineToMean(left_out, schema));
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(others).Report());
  algorithms::TakeMetrics(schema, order_.phase, aggregate);
  std::map<std::string, double> metrics;  // of a round that there was not
  const algorithms::ServerContext context{.round = order_.round,
                                          .phase = order_.phase,
                                          .seed = seed,
                                          .metrics = &metrics,
                                          .schema = &schema};
  MACAW_RETURN_IF_ERROR(twin_->Load(before_));
  MACAW_RETURN_IF_ERROR(twin_->Configure(context).status());
  const absl::StatusOr<algorithms::AfterApply> applied =
      twin_->Apply(context, std::move(aggregate));
  if (!applied.ok())
    return Annotate(applied.status(), absl::StrCat("the round without client ", client.value));
  if (*applied == algorithms::AfterApply::kNextPhase) return CannotLeaveOutOfPhases(schema.whose);
  const ConstVectorView model = twin_->Result();
  without.model = fleet::Blob::Of(fleet::EncodeVectors({&model, 1}));
  return without;
}

absl::StatusOr<double> LeaveOneOut::CosineToMean(size_t part,
                                                 const algorithms::Schema& schema) const {
  MACAW_ASSIGN_OR_RETURN(ExactSum alone, SumOf(std::span(sums_).subspan(part, 1)));
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(alone).Report());
  algorithms::TakeMetrics(schema, order_.phase, aggregate);
  const std::vector<FlatVector> own = DirectionsOf(aggregate);
  return DotOf(own, mean_) / std::sqrt(DotOf(own, own) * DotOf(mean_, mean_));
}

absl::Status CannotLeaveOutOfPhases(absl::string_view whose) {
  return absl::InvalidArgumentError(absl::StrCat(
      "evaluation.leave_one_out: a round of ", whose,
      " has several phases, and what clients send in the later ones depends on the client that "
      "would be left out: replay the run without it (macaw replay --without)"));
}

absl::Status CheckLeaveOneOut(const RunPlan& run, const algorithms::Description& algorithm,
                              const algorithms::Schema& schema) {
  if (run.evaluation.leave_one_out == 0) return absl::OkStatus();
  const auto refuse = [](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation.leave_one_out: ", why));
  };
  if (!algorithm.has_common_model) {
    return refuse(absl::StrCat("algorithm \"", run.algorithm.name,
                               "\" has no common model that a client could be left out of"));
  }
  if (!schema.models.empty()) {
    return refuse(absl::StrCat("algorithm \"", run.algorithm.name,
                               "\" has several models, and each client is tested with its own: "
                               "replay the run without it (macaw replay --without)"));
  }
  if (HasLaterPhases(schema) && algorithms::IsFactored(run.update)) {
    return refuse(absl::StrCat(
        "update.codec = [\"", run.update.codec.front(),
        "\"] gives a round two phases, and what clients send in the second one depends on the "
        "client that would be left out: take \"acpsgd\", or replay the run without it (macaw "
        "replay --without)"));
  }
  if (HasLaterPhases(schema)) return CannotLeaveOutOfPhases(schema.whose);
  if (run.privacy.on()) {
    return refuse(
        "[privacy] hides what a single client adds to a round, and this shows it: remove one of "
        "the two");
  }
  if (run.asynchronous.on()) {
    return refuse(
        "it needs rounds that wait for their clients, and round.mode lets them overlap: clients of "
        "the next rounds train from the model that has the client");
  }
  return absl::OkStatus();
}

}  // namespace macaw::server
