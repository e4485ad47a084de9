#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/decorated.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;

// ‖p − C(p)‖² and ‖p‖², over the channels of a turn.
struct CodingError {
  double dropped = 0;
  double whole = 0;

  double Relative() const {
    return whole == 0 ? 0 : std::fmin(std::sqrt(dropped / whole), kMostError);
  }
};

class CompressedClient final : public DecoratedClient {
 public:
  CompressedClient(std::unique_ptr<ClientAlgorithm> inner, Compression compression)
      : DecoratedClient(std::move(inner)), compression_(std::move(compression)) {}

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    CodingError error;
    bool coded = false;
    for (const ChannelSpec& channel : compression_.channels) {
      if (!InPhase(channel.phases, context.phase)) continue;
      coded = true;
      const auto up = std::ranges::find(result.up, channel.name, &UpVector::name);
      if (up == result.up.end()) continue;  // UpValues reports it
      MACAW_RETURN_IF_ERROR(Code(context, channel, *up, result, error, workspace));
    }
    if (!coded) return result;
    result.metrics.emplace_back(kUpdateErrorMetric, error.Relative());
    MACAW_RETURN_IF_ERROR(TellTheRule(context, result, workspace));
    return result;
  }

  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    for (const ChannelSpec& channel : compression_.channels) {
      if (!InPhase(channel.phases, context.phase)) continue;
      const auto up = std::ranges::find(result.up, channel.name, &UpVector::name);
      const auto p = std::ranges::find(result.aside, channel.name, &NamedView::name);
      if (up == result.up.end() || p == result.aside.end()) continue;
      const auto* const sent = std::get_if<ConstVectorView>(&up->value);
      if (sent == nullptr)
        return absl::InternalError(
            absl::StrCat("what was sent on the channel '", channel.name, "' is no vector"));
      Keep(context, channel, p->vector, *sent, result, workspace);
    }
    return TellTheRule(context, result, workspace);
  }

 private:
  // Replaces the rule's vector by what is sent.
  absl::Status Code(const ClientContext& context, const ChannelSpec& channel, UpVector& up,
                    ClientResult& result, CodingError& error, Workspace& workspace) const {
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> on_host,
                           OnHost({&channel, 1}, {&up.value, 1}, workspace));
    const ConstVectorView value = on_host[0];
    if (!SameLayout(value.layout, channel.layout.get())) return absl::OkStatus();  // reported later
    ConstVectorView p = value;
    // The buffers of both states are zero.
    if (compression_.feedback != Feedback::kNone) {
      const VectorView target = workspace.Vector(channel.layout);
      if (compression_.feedback == Feedback::kResidual) {
        Copy(value, target);
        Add(context.State(ResidualOf(channel.name)), target);
      } else {
        Subtract(value, context.State(SentOf(channel.name)), target);
      }
      p = target;
    }
    const VectorView sent = workspace.Vector(channel.layout);
    Copy(p, sent);
    const std::string purpose = absl::StrCat("update ", channel.name);
    codecs::Draws draws{.own = context.Random(purpose), .common = context.CommonRandom(purpose)};
    compression_.codec->Apply(sent, draws);
    const VectorView dropped = workspace.Vector(channel.layout);
    Subtract(p, sent, dropped);
    error.dropped += SquaredNorm(dropped);
    error.whole += SquaredNorm(p);
    up.value = ConstVectorView(sent);
    if (compression_.feedback != Feedback::kNone) {
      result.aside.push_back({channel.name, p});
      Keep(context, channel, p, sent, result, workspace);
    }
    return absl::OkStatus();
  }

  // The next state: e⁺ = p − sent, or g⁺ = g + sent. Of buffers nothing is kept.
  void Keep(const ClientContext& context, const ChannelSpec& channel, ConstVectorView p,
            ConstVectorView sent, ClientResult& result, Workspace& workspace) const {
    const VectorView next = workspace.Vector(channel.layout);
    std::string name;
    if (compression_.feedback == Feedback::kResidual) {
      name = ResidualOf(channel.name);
      Subtract(p, sent, next);
    } else {
      name = SentOf(channel.name);
      Copy(context.State(name), next);
      Add(sent, next);
    }
    ZeroBuffers(next);
    const auto kept = std::ranges::find(result.state, name, &NamedView::name);
    if (kept == result.state.end()) {
      result.state.push_back({std::move(name), next});
    } else {
      kept->vector = next;
    }
  }

  // Under ef21 the rule's sum is of all clients, and no state mirrors a round's.
  absl::Status TellTheRule(const ClientContext& context, ClientResult& result,
                           Workspace& workspace) const {
    if (compression_.feedback == Feedback::kEf21) return absl::OkStatus();
    return inner().Sent(context, result, workspace);
  }

  const Compression compression_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeCompressedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                      Compression compression) {
  return std::make_unique<CompressedClient>(std::move(inner), std::move(compression));
}

}  // namespace macaw::algorithms
