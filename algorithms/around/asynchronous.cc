#include "algorithms/around/asynchronous.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

// Whether the channel's mean is one of updates, which older models discount.
bool IsMeanOfUpdates(const ChannelSpec& channel) {
  return channel.reduction == Reduction::kWeightedMean || channel.reduction == Reduction::kMean;
}

class DiscountedClient final : public DecoratedClient {
 public:
  DiscountedClient(std::unique_ptr<ClientAlgorithm> inner, const AsynchronousConfig& config)
      : DecoratedClient(std::move(inner)), config_(config) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DecoratedClient::Conclude(context, outcomes, workspace));
    const double discount = DiscountOf(config_, context.staleness);
    if (discount == 1) return result;
    for (UpVector& up : result.up) {
      if (auto* displacement = std::get_if<Displacement>(&up.value)) {
        displacement->factor *= discount;
        continue;
      }
      const ConstVectorView value = std::get<ConstVectorView>(up.value);
      const VectorView discounted = workspace.Vector(value.layout);
      Copy(value, discounted);
      ScaleParameters(discount, discounted);
      up.value = ConstVectorView(discounted);
    }
    return result;
  }

 private:
  const AsynchronousConfig config_;
};

class MixedServer final : public DecoratedServer {
 public:
  MixedServer(std::unique_ptr<ServerAlgorithm> inner, const AsynchronousConfig& config)
      : DecoratedServer(std::move(inner)), config_(config) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    for (aggregation::AggregatedChannel& channel : aggregate.channels) {
      if (channel.value.empty()) continue;  // nobody counted
      const VectorView delta = channel.value.view();
      const double share = config_.mixing * DiscountOf(config_, context.staleness);
      if (context.staleness > 0) {
        Add(context.base, delta);
        Axpy(-1, Model(), delta);
      }
      ScaleParameters(share, delta);
    }
    return DecoratedServer::Apply(context, std::move(aggregate));
  }

 private:
  const AsynchronousConfig config_;
};

absl::Status CheckRule(const Description& rule, const Schema& schema) {
  if (rule.asynchronous) return absl::OkStatus();
  const char* why = "it is not made for updates of older models";
  if (!schema.state.empty())
    why = "what its clients keep goes with the server's vectors of the same round";
  return absl::InvalidArgumentError(absl::StrCat(
      "round.mode: ", why, "; rules that can: fedavg, fedprox, fedavgm, fedadam, fedyogi, "
      "fedadagrad"));
}

}  // namespace

Description Asynchronous(const Description& rule, const AsynchronousConfig& asynchronous) {
  Description result = rule;
  result.check = [rule](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    return CheckRule(rule, schema);
  };
  if (asynchronous.mixed()) {
    result.server = [rule, asynchronous](const Setup& setup, FlatVector model)
        -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
      MACAW_ASSIGN_OR_RETURN(auto inner, rule.server(setup, std::move(model)));
      return std::make_unique<MixedServer>(std::move(inner), asynchronous);
    };
    return result;
  }
  result.client = [rule, asynchronous](
                      const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(auto inner, rule.client(setup));
    return std::make_unique<DiscountedClient>(std::move(inner), asynchronous);
  };
  return result;
}

}  // namespace macaw::algorithms
