#include "algorithms/around/drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/guard.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

constexpr char kNorms[] = "drift_norms";  // ‖Δ_i‖² and ‖Δ_i‖
constexpr char kDriftMean[] = "drift_mean", kDriftMax[] = "drift_max";
constexpr char kUpdateNorm[] = "update_norm", kAgreement[] = "update_agreement";
constexpr char kCosine[] = "update_cosine";

// A buffer: attacks and clips leave it as it is.
const LayoutPtr& NormsLayout() {
  static const LayoutPtr& layout = *new LayoutPtr(*ParameterLayout::Make(
      {{.name = kNorms, .shape = {2}, .group = Group::kBuffer}}, DType::kF64));
  return layout;
}

// ‖v‖² of the parameters, in eight sums side by side: in one sum each addition would wait for the
// last one, which takes as long as some local steps.
double SquareOf(ConstVectorView v) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    for (const LayoutEntry& entry : v.layout->entries()) {
      if (entry.group != Group::kParameter) continue;
      const std::span<const T> x = v.As<T>().subspan(entry.offset, entry.size);
      size_t i = 0;
      for (; i + kLanes <= x.size(); i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane)
          sums[lane] += double{x[i + lane]} * double{x[i + lane]};
      for (size_t lane = 0; i + lane < x.size(); ++lane)
        sums[lane] += double{x[i + lane]} * double{x[i + lane]};
    }
  });
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The channel of Δ; null: the rule has none.
const ChannelSpec* UpdateChannel(const Schema& schema, const LayoutPtr& model) {
  const auto found = std::ranges::find_if(schema.up, [&](const ChannelSpec& channel) {
    return SameLayout(channel.layout.get(), model.get()) &&
           (channel.reduction == Reduction::kWeightedMean || channel.reduction == Reduction::kMean);
  });
  return found == schema.up.end() ? nullptr : &*found;
}

absl::StatusOr<Schema> RuleSchemaOf(const Description& rule, const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
  schema.whose = WhoseOf(rule);
  return schema;
}

absl::Status CheckDrift(const Description& rule, const Schema& schema, const Setup& setup) {
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("evaluation.updates: ", why...));
  };
  if (rule.has_several_models)
    return refuse("the clients of ", rule.name, " move several models: remove the key");
  if (UpdateChannel(schema, setup.layout) == nullptr) {
    return refuse(
        "the server of ", rule.name,
        " takes no mean of its clients' updates, of which norms could be told: remove the "
        "key, or run.client_records = true for each client's losses");
  }
  for (const MetricSpec& metric : schema.metrics) {
    if (metric.name == kDriftMean || metric.name == kDriftMax || metric.name == kUpdateNorm ||
        metric.name == kAgreement || metric.name == kCosine)
      return refuse("the rule reports a metric '", metric.name, "' of its own");
  }
  return absl::OkStatus();
}

// The rule's schema and what is added to it.
Schema WithNorms(Schema schema, const ChannelSpec& update) {
  const std::vector<Phase> phases = update.phases;
  constexpr double kLargestSquare = 0x1p80, kLargestNorm = 0x1p40;
  schema.metrics.push_back(
      {.name = kDriftMean, .reduction = Reduction::kMean, .bound = kLargestNorm, .phases = phases});
  schema.metrics.push_back(
      {.name = kDriftMax, .reduction = Reduction::kMax, .bound = kLargestNorm, .phases = phases});
  schema.metrics.push_back({.name = kUpdateNorm, .reduction = std::nullopt});
  schema.metrics.push_back({.name = kAgreement, .reduction = std::nullopt});
  schema.metrics.push_back({.name = kCosine, .reduction = std::nullopt});
  schema.up.push_back({.name = kNorms,
                       .layout = NormsLayout(),
                       .reduction = update.reduction,
                       .bound = kLargestSquare,
                       .phases = phases});
  return schema;
}

class DriftClient final : public DecoratedClient {
 public:
  DriftClient(std::unique_ptr<ClientAlgorithm> inner, ChannelSpec update)
      : DecoratedClient(std::move(inner)), update_(std::move(update)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    if (!InPhase(update_.phases, context.phase)) return result;
    const auto sent = std::ranges::find(result.up, update_.name, &UpVector::name);
    if (sent == result.up.end()) return result;  // UpValues says what is missing
    MACAW_ASSIGN_OR_RETURN(
        const std::vector<ConstVectorView> update,
        OnHost(std::span(&update_, 1), std::span<const UpValue>(&sent->value, 1), workspace));
    const double square = SquareOf(update[0]), norm = std::sqrt(square);
    const VectorView norms = workspace.Vector(NormsLayout());
    norms.As<double>()[0] = square;
    norms.As<double>()[1] = norm;
    result.up.push_back({kNorms, ConstVectorView(norms)});
    result.metrics.emplace_back(kDriftMean, norm);
    result.metrics.emplace_back(kDriftMax, norm);
    return result;
  }

 private:
  const ChannelSpec update_;
};

class DriftServer final : public DecoratedServer {
 public:
  DriftServer(std::unique_ptr<ServerAlgorithm> inner, ChannelSpec update)
      : DecoratedServer(std::move(inner)), update_(std::move(update)) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (InPhase(update_.phases, context.phase)) {
      const FlatVector& norms = ChannelOf(aggregate, kNorms).value;
      const FlatVector& mean = ChannelOf(aggregate, update_.name).value;
      if (!norms.empty() && !mean.empty()) {
        const double square = SquareOf(mean.view()), norm = std::sqrt(square);
        context.Report(kUpdateNorm, norm);
        context.Report(kAgreement,
                       square / norms.As<double>()[0]);         // NaN where no client has moved
        context.Report(kCosine, norm / norms.As<double>()[1]);  // likewise
      }
      std::erase_if(aggregate.channels, [](const aggregation::AggregatedChannel& channel) {
        return channel.name == kNorms;
      });
    }
    return DecoratedServer::Apply(context, std::move(aggregate));
  }

 private:
  const ChannelSpec update_;
};

}  // namespace

Description WithDrift(const Description& rule) {
  Description result = rule;
  result.check = [rule](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, RuleSchemaOf(rule, setup));
    return CheckDrift(rule, schema, setup);
  };
  const auto channel = [rule](const Setup& setup) -> absl::StatusOr<ChannelSpec> {
    MACAW_ASSIGN_OR_RETURN(const Schema schema, RuleSchemaOf(rule, setup));
    MACAW_RETURN_IF_ERROR(CheckDrift(rule, schema, setup));
    return *UpdateChannel(schema, setup.layout);
  };
  result.schema = [rule, channel](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(const ChannelSpec update, channel(setup));
    MACAW_ASSIGN_OR_RETURN(Schema schema, RuleSchemaOf(rule, setup));
    return WithNorms(std::move(schema), update);
  };
  result.client =
      [rule, channel](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(ChannelSpec update, channel(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(setup));
    return std::make_unique<DriftClient>(std::move(inner), std::move(update));
  };
  result.server = [rule, channel](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(ChannelSpec update, channel(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(setup, std::move(model)));
    return std::make_unique<DriftServer>(std::move(inner), std::move(update));
  };
  return result;
}

}  // namespace macaw::algorithms
