#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/residual_age.h"
#include "codecs/rotation.h"
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
    std::vector<UpVector> decoded;
    bool coded = false;
    for (const ChannelSpec& channel : compression_.channels) {
      if (!InPhase(channel.phases, context.phase)) continue;
      coded = true;
      const auto up = std::ranges::find(result.up, channel.name, &UpVector::name);
      if (up == result.up.end()) continue;  // UpValues reports it
      MACAW_RETURN_IF_ERROR(Code(context, channel, *up, result, error, decoded, workspace));
    }
    if (!coded) return result;
    result.metrics.emplace_back(kUpdateErrorMetric, error.Relative());
    MACAW_RETURN_IF_ERROR(TellTheRule(context, decoded, result, workspace));
    return result;
  }

  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    std::vector<UpVector> decoded;
    for (const ChannelSpec& channel : compression_.channels) {
      if (!InPhase(channel.phases, context.phase)) continue;
      const auto up = std::ranges::find(result.up, channel.name, &UpVector::name);
      const auto p = std::ranges::find(result.aside, channel.name, &NamedView::name);
      const bool keeps = p != result.aside.end();
      if (up == result.up.end() || !(keeps || compression_.rotated)) continue;
      const auto* const sent = std::get_if<ConstVectorView>(&up->value);
      if (sent == nullptr)
        return absl::InternalError(
            absl::StrCat("what was sent on the channel '", channel.name, "' is no vector"));
      decoded.push_back({channel.name, Decoded(context, channel, *sent, workspace)});
      if (keeps) {
        Keep(context, channel, p->vector, std::get<ConstVectorView>(decoded.back().value), result,
             workspace);
      }
    }
    return TellTheRule(context, decoded, result, workspace);
  }

 private:
  // Replaces the rule's vector by what is sent, and adds what is decoded of it.
  absl::Status Code(const ClientContext& context, const ChannelSpec& channel, UpVector& up,
                    ClientResult& result, CodingError& error, std::vector<UpVector>& decoded,
                    Workspace& workspace) const {
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
        Axpy(PartThatStays(compression_.residual_decay, context, channel.name),
             context.State(ResidualOf(channel.name)), target);
      } else {
        Subtract(value, context.State(SentOf(channel.name)), target);
      }
      p = target;
    }
    const VectorView sent = workspace.Vector(channel.layout);
    Copy(p, sent);
    const std::string purpose = absl::StrCat("update ", channel.name);
    codecs::Draws draws{.own = context.Random(purpose), .common = context.CommonRandom(purpose)};
    if (compression_.rotated) codecs::Rotate(sent, context.CommonRandom(RotationOf(channel.name)));
    compression_.codec->Apply(sent, draws);
    const ConstVectorView back = Decoded(context, channel, sent, workspace);
    decoded.push_back({channel.name, back});
    const VectorView dropped = workspace.Vector(channel.layout);
    Subtract(p, back, dropped);
    error.dropped += SquaredNorm(dropped);
    error.whole += SquaredNorm(p);
    up.value = ConstVectorView(sent);
    if (compression_.feedback != Feedback::kNone) {
      result.aside.push_back({channel.name, p});
      Keep(context, channel, p, back, result, workspace);
    }
    return absl::OkStatus();
  }

  // What was sent, in the model's tensors.
  ConstVectorView Decoded(const ClientContext& context, const ChannelSpec& channel,
                          ConstVectorView sent, Workspace& workspace) const {
    if (!compression_.rotated) return sent;
    const VectorView back = workspace.Vector(channel.layout);
    Copy(sent, back);
    codecs::RotateBack(back, context.CommonRandom(RotationOf(channel.name)));
    return back;
  }

  // The next state: e⁺ = p − sent, or g⁺ = g + sent, of what is decoded. Of buffers nothing is
  // kept.
  void Keep(const ClientContext& context, const ChannelSpec& channel, ConstVectorView p,
            ConstVectorView sent, ClientResult& result, Workspace& workspace) const {
    const VectorView next = workspace.Vector(channel.layout);
    std::string name;
    if (compression_.feedback == Feedback::kResidual) {
      name = ResidualOf(channel.name);
      Subtract(p, sent, next);
      if (compression_.residual_decay < 1) KeepRound(context, channel.name, result, workspace);
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

  // The rule sees what is decoded. Under ef21 its sum is of all clients, and no state mirrors a
  // round's.
  absl::Status TellTheRule(const ClientContext& context, const std::vector<UpVector>& decoded,
                           ClientResult& result, Workspace& workspace) const {
    if (compression_.feedback == Feedback::kEf21) return absl::OkStatus();
    const std::vector<UpVector> sent = result.up;
    for (const UpVector& channel : decoded)
      std::ranges::find(result.up, channel.name, &UpVector::name)->value = channel.value;
    const absl::Status status = inner().Sent(context, result, workspace);
    result.up = sent;
    return status;
  }

  const Compression compression_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakeCompressedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                      Compression compression) {
  return std::make_unique<CompressedClient>(std::move(inner), std::move(compression));
}

}  // namespace macaw::algorithms
