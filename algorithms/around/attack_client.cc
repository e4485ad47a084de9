#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/reported_weight.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/privacy.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

// The same tensors lie elsewhere in a vector of another dtype.
void SquareInto(ConstVectorView from, VectorView out) {
  DispatchDType(from.dtype(), [&]<typename T>(T) {
    for (size_t e = 0; e < out.layout->entries().size(); ++e) {
      const LayoutEntry &source = from.layout->entries()[e], &target = out.layout->entries()[e];
      const std::span<const T> values = from.As<T>().subspan(source.offset, source.size);
      const std::span<double> squares = out.As<double>().subspan(target.offset, target.size);
      for (size_t i = 0; i < values.size(); ++i) squares[i] = double{values[i]} * double{values[i]};
    }
  });
}

class AttackedClient final : public DecoratedClient {
 public:
  AttackedClient(std::unique_ptr<ClientAlgorithm> inner, std::shared_ptr<const Attack> attack,
                 const Schema& rule, LayoutPtr model, std::vector<std::string> beside)
      : DecoratedClient(std::move(inner)),
        attack_(std::move(attack)),
        rule_(rule),
        attacked_(WithAttack(rule, attack_->config)),
        model_(std::move(model)),
        beside_(std::move(beside)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (IsIdle(context)) return training::LocalPlan();
    return DecoratedClient::Prepare(context, workspace);
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    if (IsIdle(context)) return training::LocalPlan();
    return DecoratedClient::Continue(context, outcomes, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const bool hostile = attack_->Hits(context.client);
    ClientResult result;
    if (RidesFree(context)) {
      MACAW_ASSIGN_OR_RETURN(result, FreeRide(context, outcomes, workspace));
    } else {
      MACAW_ASSIGN_OR_RETURN(result, inner().Conclude(context, outcomes, workspace));
    }
    if (attack_->config.omniscient()) {
      if (hostile) SendZeros(result, workspace);
      MACAW_RETURN_IF_ERROR(AddChannels(context, hostile, result, workspace));
    } else if (hostile && attack_->config.scales()) {
      const double sign = attack_->config.kind == "sign-flip" ? -1 : 1;
      for (UpVector& up : result.up) {
        // Of whether an update is long, only yes or no is taken.
        if (up.name != kShorterChannel && !IsBeside(up.name))
          Multiply(sign * attack_->config.Scale(), up, workspace);
      }
    }
    if (context.phase == Phase(0)) result.metrics.emplace_back(kAttackersMetric, hostile ? 1 : 0);
    return result;
  }

 private:
  bool RidesFree(const ClientContext& context) const {
    return attack_->config.kind == "free-rider" && attack_->Hits(context.client);
  }

  bool IsBeside(const std::string& channel) const {
    return std::ranges::count(beside_, channel) > 0;
  }

  // A free-rider that needs no work. A weight is known without.
  bool IsIdle(const ClientContext& context) const {
    return RidesFree(context) && std::ranges::none_of(rule_.up, [&](const ChannelSpec& channel) {
             return channel.name != kWeightChannel && IsBeside(channel.name) &&
                    InPhase(channel.phases, context.phase);
           });
  }

  // Null: the rule has no such channel, which whoever reads the result reports.
  const ChannelSpec* Find(const std::string& name) const {
    const auto found = std::ranges::find(rule_.up, name, &ChannelSpec::name);
    return found == rule_.up.end() ? nullptr : &*found;
  }

  // What the rule concludes if training has moved nothing: each training stage ends where it began.
  absl::StatusOr<ClientResult> ConcludeAtRest(const ClientContext& context,
                                              std::span<const training::StageOutcome> outcomes,
                                              Workspace& workspace) const {
    std::vector<training::StageOutcome> rested(outcomes.begin(), outcomes.end());
    MACAW_ASSIGN_OR_RETURN(training::LocalPlan next, inner().Prepare(context, workspace));
    size_t done = 0;
    while (!next.stages.empty() && done < rested.size()) {
      for (const training::Stage& stage : next.stages) {
        if (done == rested.size()) break;
        training::StageOutcome& outcome = rested[done++];
        if (stage.kind != training::StageKind::kTrain) continue;
        const auto* const view = std::get_if<ConstVectorView>(&stage.start);
        outcome.end = view != nullptr ? training::EndVector(*view)
                                      : rested[std::get<training::StageEnd>(stage.start).stage].end;
      }
      MACAW_ASSIGN_OR_RETURN(next,
                             inner().Continue(context, std::span(rested).first(done), workspace));
    }
    return inner().Conclude(context, rested, workspace);
  }

  absl::StatusOr<ClientResult> FreeRide(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const {
    ClientResult numbers, result;
    if (!IsIdle(context)) {
      MACAW_ASSIGN_OR_RETURN(numbers, ConcludeAtRest(context, outcomes, workspace));
    }
    for (const ChannelSpec& channel : rule_.up) {
      if (!InPhase(channel.phases, context.phase)) continue;
      const auto number = std::ranges::find(numbers.up, channel.name, &UpVector::name);
      if (IsBeside(channel.name) && number != numbers.up.end()) {
        result.up.push_back(*number);
        continue;
      }
      const VectorView vector = workspace.Vector(channel.layout);
      Zero(vector);
      if (channel.name == kWeightChannel) vector.As<double>()[0] = context.weight;
      const double noise = attack_->config.noise;
      if (noise > 0 && SameLayout(channel.layout.get(), model_.get()))
        AddNormal(context.Random(absl::StrCat("attack ", channel.name)), noise, vector);
      result.up.push_back({channel.name, ConstVectorView(vector)});
    }
    for (const MetricSpec& metric : rule_.metrics) {
      if (metric.reduction.has_value() && InPhase(metric.phases, context.phase))
        result.metrics.emplace_back(metric.name, 0.0);
    }
    return result;
  }

  // The parameters times `factor`.
  void Multiply(double factor, UpVector& up, Workspace& workspace) const {
    if (auto* described = std::get_if<Displacement>(&up.value)) {
      described->factor *= factor;
      return;
    }
    auto& view = std::get<ConstVectorView>(up.value);
    const ChannelSpec* const channel = Find(up.name);
    if (channel == nullptr || !SameLayout(view.layout, channel->layout.get())) return;
    const VectorView changed = workspace.Vector(channel->layout);
    Copy(view, changed);
    ScaleParameters(factor, changed);
    view = changed;
  }

  void SendZeros(ClientResult& result, Workspace& workspace) const {
    for (UpVector& up : result.up) {
      const ChannelSpec* const channel = Find(up.name);
      if (channel == nullptr) continue;
      const VectorView zeros = workspace.Vector(channel->layout);
      Zero(zeros);
      up.value = ConstVectorView(zeros);
    }
  }

  // What the server half needs (kHonestCount and the others).
  absl::Status AddChannels(const ClientContext& context, bool hostile, ClientResult& result,
                           Workspace& workspace) const {
    const std::vector<UpVector> sent = result.up;
    for (size_t c = rule_.up.size(); c < attacked_.up.size(); ++c) {
      const ChannelSpec& channel = attacked_.up[c];
      if (!InPhase(channel.phases, context.phase)) continue;
      const VectorView value = workspace.Vector(channel.layout);
      Zero(value);
      result.up.push_back({channel.name, ConstVectorView(value)});
      if (hostile) continue;
      if (channel.name == kHonestCount || channel.name == kHonestWeight) {
        value.As<double>()[0] = 1;
        continue;
      }
      for (const UpVector& up : sent) {
        const ChannelSpec* const own = Find(up.name);
        if (own != nullptr && EachOf(up.name) == channel.name) result.up.back().value = up.value;
        if (own == nullptr || SquaresOf(up.name) != channel.name) continue;
        MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> on_host,
                               OnHost({own, 1}, std::span(&up.value, 1), workspace));
        if (SameLayout(on_host[0].layout, own->layout.get())) SquareInto(on_host[0], value);
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const Attack> attack_;
  const Schema rule_;      // of the rule alone
  const Schema attacked_;  // with the channels of the attack behind the rule's
  const LayoutPtr model_;
  const std::vector<std::string> beside_;  // channels that are no updates
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeAttackedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    const Schema& rule, LayoutPtr model,
                                                    std::vector<std::string> beside) {
  return std::make_unique<AttackedClient>(std::move(inner), std::move(attack), rule,
                                          std::move(model), std::move(beside));
}

}  // namespace macaw::algorithms
