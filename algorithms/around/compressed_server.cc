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

using aggregation::Aggregate;
using aggregation::AggregatedChannel;
using aggregation::ChannelSpec;
using aggregation::Reduction;

// Calls f(a, b) with each tensor of parameters of two vectors of the same tensors, whose dtypes may
// differ. `b` is of doubles.
template <typename F>
void ForEachPair(ConstVectorView a, VectorView b, F&& f) {
  DispatchDType(a.dtype(), [&]<typename T>(T) {
    for (size_t e = 0; e < a.layout->entries().size(); ++e) {
      const LayoutEntry &one = a.layout->entries()[e], &other = b.layout->entries()[e];
      if (one.group != Group::kParameter) continue;
      f(a.As<T>().subspan(one.offset, one.size), b.As<double>().subspan(other.offset, other.size));
    }
  });
}

// The parameters of a sum in double precision, times `factor`, rounded.
void RoundInto(ConstVectorView sum, double factor, VectorView out) {
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    for (size_t e = 0; e < out.layout->entries().size(); ++e) {
      const LayoutEntry &from = sum.layout->entries()[e], &to = out.layout->entries()[e];
      if (from.group != Group::kParameter) continue;
      const std::span<const double> values = sum.As<double>().subspan(from.offset, from.size);
      const std::span<T> rounded = out.As<T>().subspan(to.offset, to.size);
      for (size_t i = 0; i < values.size(); ++i) rounded[i] = static_cast<T>(factor * values[i]);
    }
  });
}

class Ef21Server final : public DecoratedServer {
 public:
  Ef21Server(std::unique_ptr<ServerAlgorithm> inner, Compression compression)
      : DecoratedServer(std::move(inner)), compression_(std::move(compression)) {
    for (const ChannelSpec& channel : compression_.channels)
      sums_.emplace_back(InDouble(channel.layout));
    seen_.resize(sums_.size());
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context, Aggregate aggregate) override {
    for (size_t c = 0; c < sums_.size(); ++c) {
      const ChannelSpec& spec = compression_.channels[c];
      if (!InPhase(spec.phases, context.phase)) continue;
      AggregatedChannel& channel = ChannelOf(aggregate, spec.name);
      // Σ_S p_i c_i.
      const double share = ShareOf(spec, channel.weight);
      if (channel.value.empty()) {
        channel.value = FlatVector(spec.layout);  // no client was counted: buffers stay
      } else {
        ForEachPair(channel.value.view(), sums_[c].view(),
                    [&](const auto& value, std::span<double> sum) {
                      for (size_t i = 0; i < sum.size(); ++i)
                        sum[i] += static_cast<double>(value[i]) * share;
                    });
      }
      // The share of all clients that came in this round, and in some round, if they are drawn
      // independently of the rounds before.
      const double came =
          spec.reduction == Reduction::kFixedSum ? channel.weight / compression_.clients : share;
      seen_[c] += (1 - seen_[c]) * came;
      // A fixed sum is of those who came, and so is what the rule gets in its place.
      const double part = spec.reduction == Reduction::kFixedSum ? came : 1;
      if (seen_[c] > 0)
        RoundInto(std::as_const(sums_[c]).view(), part / seen_[c], channel.value.view());
      channel.weight = WholeOf(spec, channel.weight);
    }
    return inner().Apply(context, std::move(aggregate));
  }

  ServerState Save() const override {
    ServerState state = inner().Save();
    for (size_t c = 0; c < sums_.size(); ++c) {
      state.vectors.insert_or_assign(NameOfSum(c), sums_[c].Clone());
      state.numbers.insert_or_assign(NameOfSum(c), seen_[c]);
    }
    return state;
  }

  absl::Status Load(const ServerState& state) override {
    for (size_t c = 0; c < sums_.size(); ++c) {
      const std::string name = NameOfSum(c);
      const auto found = state.vectors.find(name);
      if (found == state.vectors.end() || !state.numbers.contains(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the saved state has no vector and number '", name,
                         "': it belongs to a run without update.feedback = \"ef21\""));
      }
      if (!SameLayout(found->second.layout().get(), sums_[c].layout().get())) {
        return absl::InvalidArgumentError(absl::StrCat("the saved vector '", name,
                                                       "' has another layout than the channel '",
                                                       compression_.channels[c].name, "'"));
      }
    }
    MACAW_RETURN_IF_ERROR(inner().Load(state));
    for (size_t c = 0; c < sums_.size(); ++c) {
      Copy(state.vectors.at(NameOfSum(c)).view(), sums_[c].view());
      seen_[c] = state.numbers.at(NameOfSum(c));
    }
    return absl::OkStatus();
  }

  absl::Status ForgetStates() override {
    if (compression_.rule_sums) MACAW_RETURN_IF_ERROR(inner().ForgetStates());
    for (FlatVector& sum : sums_) Zero(sum.view());
    std::ranges::fill(seen_, 0);
    return absl::OkStatus();
  }

 private:
  std::string NameOfSum(size_t c) const { return SumOf(compression_.channels[c].name); }

  // What the channel's weight would be if all clients had come.
  double WholeOf(const ChannelSpec& spec, double weight) const {
    if (spec.reduction == Reduction::kWeightedMean) return compression_.total_weight;
    return spec.reduction == Reduction::kMean ? compression_.clients : weight;
  }
  double ShareOf(const ChannelSpec& spec, double weight) const {
    return spec.reduction == Reduction::kFixedSum ? 1 : weight / WholeOf(spec, weight);
  }

  const Compression compression_;
  std::vector<FlatVector> sums_;  // G of each channel, in double precision; buffers are zero
  std::vector<double> seen_;      // the share of all clients that has come so far, expected
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeCompressedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                      Compression compression) {
  return std::make_unique<Ef21Server>(std::move(inner), std::move(compression));
}

}  // namespace macaw::algorithms
