#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/coded_broadcast.h"
#include "algorithms/around/decorated.h"
#include "core/blob_digest.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class CodedBroadcastServer final : public DecoratedServer {
 public:
  CodedBroadcastServer(std::unique_ptr<ServerAlgorithm> inner,
                       std::shared_ptr<const codecs::Codec> codec, bool of_change,
                       std::string channel, const LayoutPtr& layout)
      : DecoratedServer(std::move(inner)),
        codec_(std::move(codec)),
        of_change_(of_change),
        channel_(std::move(channel)),
        sent_(layout) {
    if (!of_change_) return;
    before_ = FlatVector(layout);
    change_ = FlatVector(layout);
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    MACAW_ASSIGN_OR_RETURN(Broadcast broadcast, inner().Configure(context));
    const auto model = std::ranges::find(broadcast, channel_, &DownVector::name);
    if (model == broadcast.end() || !SameLayout(model->vector.layout, sent_.layout().get()))
      return broadcast;  // DownViews reports it: CheckSchema has it that this is the model
    const Digest x = BlobDigest(model->vector.bytes);
    if (made_ == context.round && x != made_of_ && of_change_) {
      return absl::InvalidArgumentError(
          "the rule moves its model between the phases of a round, and broadcast.of = \"change\" "
          "sends one change a round: use broadcast.of = \"model\"");
    }
    if (made_ != context.round || x != made_of_) Make(context, model->vector);
    made_of_ = x;
    model->vector = std::as_const(sent_).view();
    if (of_change_ && was_sent_) {
      model->before = std::as_const(before_).view();
      model->change = std::as_const(change_).view();
    }
    return broadcast;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const bool made = made_ == context.round;
    MACAW_ASSIGN_OR_RETURN(const AfterApply next, inner().Apply(context, std::move(aggregate)));
    if (!made) return next;
    context.Report(kBroadcastErrorMetric, error_);
    if (next == AfterApply::kRoundDone) {
      was_sent_ = of_change_;
      open_ = false;
    }
    return next;
  }

  ServerState Save() const override {
    ServerState state = inner().Save();
    if (!of_change_) return state;
    // A round that is open begins again.
    const bool again = open_ && was_sent_;
    state.vectors.insert_or_assign(kBroadcastSent, again ? before_.Clone() : sent_.Clone());
    state.numbers.insert_or_assign(kBroadcastSent, was_sent_ ? 1 : 0);
    return state;
  }

  absl::Status Load(const ServerState& state) override {
    const auto found = state.vectors.find(kBroadcastSent);
    const auto was_sent = state.numbers.find(kBroadcastSent);
    if (of_change_ && (found == state.vectors.end() || was_sent == state.numbers.end())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved state has no vector and number '", kBroadcastSent,
                       "': it belongs to a run without broadcast.of = \"change\""));
    }
    if (of_change_ && !SameLayout(found->second.layout().get(), sent_.layout().get())) {
      return absl::InvalidArgumentError(absl::StrCat("the saved vector '", kBroadcastSent,
                                                     "' has another layout than the model"));
    }
    MACAW_RETURN_IF_ERROR(inner().Load(state));
    made_.reset();
    open_ = false;
    if (!of_change_) return absl::OkStatus();
    Copy(found->second.view(), sent_.view());
    was_sent_ = was_sent->second != 0;
    return absl::OkStatus();
  }

 private:
  // z of this round.
  void Make(const ServerContext& context, ConstVectorView x) const {
    codecs::Draws draws{.own = context.Random("broadcast"),
                        .common = context.Random("broadcast common")};
    if (of_change_ && was_sent_) {
      Copy(sent_.view(), before_.view());
      Subtract(x, before_.view(), change_.view());
      Code(change_.view(), draws);
      ScaleParameters(Shorter(x), change_.view());
      CopyBuffers(x, change_.view());
      AddChange(std::as_const(change_).view(), sent_.view());
    } else {
      Copy(x, sent_.view());
      if (!of_change_) Code(sent_.view(), draws);
      CopyBuffers(x, sent_.view());
    }
    made_ = context.round;
    open_ = true;
    double apart = 0;
    ForEachParameter(x, [&]<typename T>(uint64_t i, T from) {
      const double d = double{from} - double{sent_.As<T>()[i]};
      apart += d * d;
    });
    const double whole = SquaredNorm(x);
    error_ = whole == 0 ? 0 : std::sqrt(apart / whole);
  }

  // γ of p = x − before: the power of two, at most 1, that is nearest to ⟨p, C(p)⟩/‖C(p)‖². With it
  // ‖p − γC(p)‖ < ‖p‖, whatever the draws were. A power of two keeps the steps of a quantiser.
  double Shorter(ConstVectorView x) const {
    double product = 0;
    ForEachParameter(x, [&]<typename T>(uint64_t i, T from) {
      product += double{from - before_.As<T>()[i]} * double{change_.As<T>()[i]};
    });
    const double best = product / SquaredNorm(std::as_const(change_).view());
    // Not where nothing is sent, or something is not finite.
    return best > 0 && best < 1 ? std::exp2(std::round(std::log2(best))) : 1;
  }

  // f(i, v[i]) of each parameter.
  template <typename F>
  static void ForEachParameter(ConstVectorView v, F&& f) {
    DispatchDType(v.dtype(), [&]<typename T>(T) {
      const std::span<const T> values = v.As<T>();
      for (const LayoutEntry& entry : v.layout->entries()) {
        if (entry.group != Group::kParameter) continue;
        for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) f(i, values[i]);
      }
    });
  }

  // v ← C(v). A −0 would cost its block the form of levels.
  void Code(VectorView v, codecs::Draws& draws) const {
    codec_->Apply(v, draws);
    Map(v, [](auto value) { return value + 0; });
  }

  const std::shared_ptr<const codecs::Codec> codec_;
  const bool of_change_;
  const std::string channel_;  // of the model
  bool was_sent_ = false;      // sent_ is of a round that is over (change)
  // Made with the round's first broadcast.
  mutable FlatVector sent_;             // z
  mutable FlatVector before_, change_;  // of sent_ (change)
  mutable std::optional<Round> made_;   // the round that they are of
  mutable Digest made_of_;              // of x
  mutable bool open_ = false;           // that round is not over
  mutable double error_ = 0;
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeCodedBroadcastServer(
    std::unique_ptr<ServerAlgorithm> inner, std::shared_ptr<const codecs::Codec> codec,
    bool of_change, std::string model_channel, const LayoutPtr& layout) {
  return std::make_unique<CodedBroadcastServer>(std::move(inner), std::move(codec), of_change,
                                                std::move(model_channel), layout);
}

}  // namespace macaw::algorithms
