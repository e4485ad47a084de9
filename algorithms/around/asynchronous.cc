#include "algorithms/around/asynchronous.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "algorithms/around/majority.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;

class DiscountedClient final : public DecoratedClient {
 public:
  DiscountedClient(std::unique_ptr<ClientAlgorithm> inner, const AsynchronousConfig& config,
                   const Schema& rule)
      : DecoratedClient(std::move(inner)), config_(config), channels_(rule.up) {}

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
      const auto channel = std::ranges::find(channels_, up.name, &ChannelSpec::name);
      const VectorView discounted = workspace.Vector(channel->layout);
      Copy(value, discounted);
      ScaleParameters(discount, discounted);
      up.value = ConstVectorView(discounted);
    }
    return result;
  }

 private:
  const AsynchronousConfig config_;
  const std::vector<ChannelSpec> channels_;
};

bool HasNoParameters(const ParameterLayout& layout) {
  return std::ranges::none_of(
      layout.entries(), [](const LayoutEntry& entry) { return entry.group == Group::kParameter; });
}

class MixedServer final : public DecoratedServer {
 public:
  // `coded`: clients begin from a coded model.
  MixedServer(std::unique_ptr<ServerAlgorithm> inner, const AsynchronousConfig& config, bool coded)
      : DecoratedServer(std::move(inner)), config_(config), coded_(coded) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    for (aggregation::AggregatedChannel& channel : aggregate.channels) {
      if (channel.value.empty()) continue;  // no client counted
      const VectorView delta = channel.value.view();
      if (HasNoParameters(*delta.layout)) continue;  // norms of updates (drift.h)
      const double share = config_.mixing * DiscountOf(config_, context.staleness);
      if (context.staleness > 0 || coded_) {  // else the base is the model
        if (!SameLayout(context.base.layout, delta.layout))
          return absl::InternalError("round.mode: the base has another layout than the update");
        Add(context.base, delta);
        Axpy(-1, Model(), delta);
      }
      ScaleParameters(share, delta);
    }
    return DecoratedServer::Apply(context, std::move(aggregate));
  }

 private:
  const AsynchronousConfig config_;
  const bool coded_;
};

absl::Status CheckRule(const Description& rule, const Setup& setup) {
  const absl::StatusOr<Schema> schema = rule.schema(setup);
  if (rule.asynchronous) {
    MACAW_RETURN_IF_ERROR(schema.status());
    if (schema->state.empty() && schema->down.size() == 1 &&
        SameLayout(schema->down[0].layout.get(), setup.layout.get()))
      return absl::OkStatus();
  }
  const bool stateful = schema.ok() && !schema->state.empty();
  const char* const why =
      stateful ? "what the rule's clients keep goes with the server's vectors of one round"
               : "the rule is not made for updates of older models";
  return absl::InvalidArgumentError(
      absl::StrCat("round.mode: ", why,
                   "; rules that can: fedavg, fedprox, fedsam, fedavgm, fedadam, fedyogi, "
                   "fedadagrad"));
}

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("round.mode: ", what));
}

// What steps of the next arrivals cannot have.
absl::Status CheckArrivals(const RunPlan& run) {
  const AsynchronousConfig& asynchronous = run.asynchronous;
  const CohortConfig& cohort = run.cohort;
  if (cohort.sampling != "uniform" && cohort.sampling != "available") {
    return Refused(absl::StrCat("cohort.sampling = \"", cohort.sampling,
                                "\" is of rounds; use \"uniform\" or \"available\""));
  }
  if (cohort.over_selection > 1)
    return Refused("the first cohort.size arrivals count anyway: take cohort.over_selection out");
  if (cohort.straggler_fraction > 0 && cohort.straggler_policy == "drop")
    return Refused("a step waits for no straggler: take cohort.straggler_policy = \"drop\" out");
  if (run.devices.deadline > 0 || run.devices.enough > 0 || run.devices.quorum < 1 ||
      run.devices.drops_below) {
    return Refused(
        "a step has cohort.size arrivals, and round.deadline, quorum, enough and below_quorum close "
        "rounds that wait: take them out");
  }
  if (asynchronous.mixed() && cohort.size != 1)
    return Refused("\"mixed\" moves the model at each arrival: set cohort.size = 1");
  if (asynchronous.concurrency > 0 && asynchronous.concurrency < cohort.size) {
    return Refused(absl::StrCat("round.concurrency = ", asynchronous.concurrency,
                                " clients at a time, fewer than cohort.size = ", cohort.size));
  }
  const uint64_t places = std::max(asynchronous.concurrency, cohort.size);
  if (asynchronous.refill > places) {
    return Refused(absl::StrCat("round.refill = ", asynchronous.refill, ", but only ", places,
                                " clients train at a time"));
  }
  if (TrainClients(run) > 0 && places > TrainClients(run)) {
    return Refused(absl::StrCat(places, " clients at a time, but ", TrainClients(run),
                                " can be drawn: lower round.concurrency"));
  }
  if (run.privacy.on())
    return Refused(
        "the epsilon of [privacy] is of drawn cohorts, and arrivals are not drawn: take it out");
  if (IsMajority(run.update))
    return Refused("a vote has no size that could be discounted: take \"majority\" out");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAsynchronous(const RunPlan& run) {
  const AsynchronousConfig& asynchronous = run.asynchronous;
  if (!asynchronous.on()) return absl::OkStatus();
  if (asynchronous.overlapped() && !run.devices.on())
    return Refused(
        "the devices say how long clients take: add [devices], for example family = \"phones\"");
  if (LearnsFromRounds(run.cohort)) {
    return Refused(absl::StrCat("cohort.sampling = \"", run.cohort.sampling,
                                "\" compares the clients of closed rounds, and here clients begin "
                                "while others train; use \"uniform\" or \"available\""));
  }
  if (IsFactored(run.update)) {
    return Refused(absl::StrCat("update.codec = [\"", run.update.codec.front(),
                                "\"] projects on factors of the same round; use another codec"));
  }
  return asynchronous.by_arrival() ? CheckArrivals(run) : absl::OkStatus();
}

Description Asynchronous(const Description& rule, const RunPlan& run) {
  const AsynchronousConfig asynchronous = run.asynchronous;
  Description result = rule;
  result.check = [rule, refused = CheckAsynchronous(run)](const Setup& setup) -> absl::Status {
    MACAW_RETURN_IF_ERROR(refused);
    MACAW_RETURN_IF_ERROR(CheckRule(rule, setup));
    return rule.check ? rule.check(setup) : absl::OkStatus();
  };
  if (asynchronous.mixed()) {
    result.server = [rule, asynchronous, coded = run.broadcast.on()](
                        const Setup& setup,
                        FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
      MACAW_ASSIGN_OR_RETURN(auto inner, rule.server(setup, std::move(model)));
      return std::make_unique<MixedServer>(std::move(inner), asynchronous, coded);
    };
    return result;
  }
  if (asynchronous.overlapped()) return result;  // all updates are equally old
  result.client =
      [rule, asynchronous](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(auto inner, rule.client(setup));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    return std::make_unique<DiscountedClient>(std::move(inner), asynchronous, schema);
  };
  return result;
}

}  // namespace macaw::algorithms
