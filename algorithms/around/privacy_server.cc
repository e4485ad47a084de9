#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/accountant.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/privacy.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::Aggregate;
using aggregation::AggregatedChannel;
using aggregation::ChannelSpec;
using aggregation::Reduction;

class PrivateServer final : public DecoratedServer {
 public:
  PrivateServer(std::unique_ptr<ServerAlgorithm> inner, Schema rule, const Privacy& privacy)
      : DecoratedServer(std::move(inner)),
        rule_(std::move(rule)),
        privacy_(privacy),
        accountant_(privacy.q, privacy.config.noise),
        clip_(ParameterLayout::Scalars("value", 1, DType::kF64)) {
    clip() = privacy.config.clip;
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    MACAW_ASSIGN_OR_RETURN(Broadcast broadcast, inner().Configure(context));
    if (adaptive()) broadcast.push_back({kClipChannel, clip_.view()});
    return broadcast;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context, Aggregate aggregate) override {
    for (const ChannelSpec& spec : rule_.up) Blur(context, spec, ChannelOf(aggregate, spec.name));
    context.Report("epsilon", accountant_.RenyiEpsilon(context.round.value, privacy_.config.delta));
    context.Report("clip", clip());
    if (adaptive()) MoveClip(context, aggregate);
    aggregate.clients = std::max<uint64_t>(1, std::llround(privacy_.cohort));
    MACAW_ASSIGN_OR_RETURN(const AfterApply after, inner().Apply(context, std::move(aggregate)));
    if (after == AfterApply::kRoundDone) return after;
    return absl::InternalError("the rule has several phases a round, and epsilon is of one");
  }

  ServerState Save() const override {
    ServerState state = inner().Save();
    state.numbers[kClipChannel] = clip();
    return state;
  }
  absl::Status Load(const ServerState& state) override {
    const auto found = state.numbers.find(kClipChannel);
    if (found == state.numbers.end())
      return absl::InvalidArgumentError(
          absl::StrCat("the saved state has no number '", kClipChannel, "'"));
    MACAW_RETURN_IF_ERROR(inner().Load(state));
    clip() = found->second;
    return absl::OkStatus();
  }

 private:
  bool adaptive() const { return privacy_.config.adaptive(); }
  double& clip() { return clip_.As<double>()[0]; }
  double clip() const { return clip_.As<double>()[0]; }

  // Makes the channel's value the noised sum divided by its divisor, or by the planned cohort if it
  // is a mean. The number of reports is hidden, zero included.
  void Blur(const ServerContext& context, const ChannelSpec& spec, AggregatedChannel& channel) {
    const bool mean = spec.reduction != Reduction::kFixedSum;
    const double divisor = mean ? privacy_.cohort : spec.divisor;
    if (channel.value.empty()) {
      channel.value = FlatVector(spec.layout);
    } else if (mean) {
      Scale(channel.weight / divisor, channel.value.view());
    }
    channel.weight = privacy_.cohort;
    channel.max_abs = 0;  // of a client's own values
    AddNormalWithTail(context.Random(absl::StrCat("privacy ", spec.name)),
                      privacy_.noise * clip() / divisor, channel.value.view());
  }

  void MoveClip(const ServerContext& context, Aggregate& aggregate) {
    const auto found = std::ranges::find(aggregate.channels, std::string(kShorterChannel),
                                         &AggregatedChannel::name);
    const double halves = found == aggregate.channels.end() || found->value.empty()
                              ? 0
                              : found->value.As<double>()[0];
    if (found != aggregate.channels.end()) aggregate.channels.erase(found);
    RandomStream random = context.Random(kShorterChannel);
    const double shorter = std::clamp(
        0.5 + halves + privacy_.count_noise * random.Normal() / privacy_.cohort, 0.0, 1.0);
    context.Report("clipped", 1 - shorter);
    const PrivacyConfig& config = privacy_.config;
    clip() = std::clamp(clip() * std::exp(-config.clip_rate * (shorter - *config.clip_quantile)),
                        config.clip / kClipRange, config.clip * kClipRange);
  }

  const Schema rule_;  // of the rule alone
  const Privacy privacy_;
  const Accountant accountant_;
  FlatVector clip_;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakePrivateServer(std::unique_ptr<ServerAlgorithm> inner,
                                                   Schema rule, const Privacy& privacy) {
  return std::make_unique<PrivateServer>(std::move(inner), std::move(rule), privacy);
}

}  // namespace macaw::algorithms
