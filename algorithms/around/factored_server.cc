#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/factored.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::Aggregate;
using aggregation::AggregatedChannel;
using codecs::Factor;

class FactoredServer final : public DecoratedServer {
 public:
  FactoredServer(std::unique_ptr<ServerAlgorithm> inner, Factoring factoring)
      : DecoratedServer(std::move(inner)), factoring_(std::move(factoring)) {
    for (const FactoredChannel& channel : factoring_.channels) {
      Bases& bases = bases_.emplace_back(channel.form);
      for (const Factor which : {Factor::kP, Factor::kQ}) {
        // Of a zero vector every column is drawn.
        channel.form.Orthonormalise(which, channel.form.StartRanks(), Start(channel, which),
                                    bases.Of(which).view());
      }
    }
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    MACAW_ASSIGN_OR_RETURN(Broadcast broadcast, inner().Configure(context));
    const Factor basis = Other(factoring_.Sent(context.round, context.phase));
    for (size_t c = 0; c < bases_.size(); ++c)
      broadcast.push_back({BasisOf(factoring_.channels[c].spec.name), bases_[c].Of(basis).view()});
    return broadcast;
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context, Aggregate aggregate) override {
    if (factoring_.adapt > 0) context.Report(kUpdateRankMetric, MeanRank());
    std::vector<AggregatedChannel> factors;
    for (const FactoredChannel& channel : factoring_.channels)
      factors.push_back(Take(aggregate, FactorOf(channel.spec.name)));
    // A mean of clients that weigh nothing has no value either.
    const bool nobody =
        aggregate.clients == 0 || std::ranges::any_of(factors, [](const AggregatedChannel& factor) {
          return factor.value.empty();
        });
    if (factoring_.two_phases && context.phase == kFirst && !nobody) {
      for (size_t c = 0; c < bases_.size(); ++c) KeepBasis(context, c, factors[c].value);
      held_ = std::move(aggregate);
      return AfterApply::kNextPhase;
    }
    if (factoring_.two_phases && context.phase == kSecond)
      aggregate = std::exchange(held_, Aggregate());
    for (size_t c = 0; c < bases_.size(); ++c) {
      const FactoredChannel& channel = factoring_.channels[c];
      AggregatedChannel rest, errors;
      if (channel.form.rest() != nullptr) rest = Take(aggregate, RestOf(channel.spec.name));
      if (factoring_.adapt > 0) errors = Take(aggregate, ErrorsOf(channel.spec.name));
      aggregate.channels.push_back(Whole(context, c, factors[c], rest));
      if (nobody) continue;
      KeepBasis(context, c, factors[c].value);
      if (factoring_.Chooses(context.round)) ChooseRanks(context, c, errors.value);
    }
    MACAW_ASSIGN_OR_RETURN(const AfterApply after, inner().Apply(context, std::move(aggregate)));
    if (after == AfterApply::kRoundDone) return after;
    return absl::InternalError("the rule has several phases a round, and factors are of one");
  }

  ServerState Save() const override {
    ServerState state = inner().Save();
    ForEachBasis([&](size_t c, Factor which, const std::string& name) {
      state.vectors.insert_or_assign(name, bases_[c].Of(which).Clone());
    });
    return state;
  }

  absl::Status Load(const ServerState& state) override {
    absl::Status status;
    ForEachBasis([&](size_t c, Factor which, const std::string& name) {
      const auto found = state.vectors.find(name);
      const bool fits =
          found != state.vectors.end() &&
          SameLayout(found->second.layout().get(), bases_[c].Of(which).layout().get());
      if (!fits && status.ok())
        status = absl::InvalidArgumentError(
            absl::StrCat("the saved state has no vector '", name, "' of the rank of update.codec"));
    });
    if (!status.ok()) return status;
    MACAW_RETURN_IF_ERROR(inner().Load(state));
    ForEachBasis([&](size_t c, Factor which, const std::string& name) {
      Copy(state.vectors.at(name).view(), bases_[c].Of(which).view());
    });
    return absl::OkStatus();
  }

 private:
  // Orthonormal P and Q of a channel.
  struct Bases {
    explicit Bases(const codecs::LowRank& form) : p(form.factor()), q(form.factor()) {}
    FlatVector& Of(Factor which) { return which == Factor::kP ? p : q; }
    const FlatVector& Of(Factor which) const { return which == Factor::kP ? p : q; }
    FlatVector p, q;
  };

  static Factor Other(Factor which) { return which == Factor::kP ? Factor::kQ : Factor::kP; }

  RandomStream Start(const FactoredChannel& channel, Factor which) const {
    const ServerContext start{.seed = factoring_.seed};
    return start.Random(
        absl::StrCat("update start ", channel.spec.name, which == Factor::kP ? " p" : " q"));
  }

  // The rule's channel, of a mean factor and the mean of the rest. Empty if nobody has sent it.
  AggregatedChannel Whole(const ServerContext& context, size_t c, const AggregatedChannel& factor,
                          const AggregatedChannel& rest) const {
    const FactoredChannel& channel = factoring_.channels[c];
    AggregatedChannel whole{.name = channel.spec.name, .weight = factor.weight};
    if (factor.value.empty()) return whole;
    const Factor which = factoring_.Sent(context.round, context.phase);
    whole.value = FlatVector(channel.spec.layout);
    channel.form.Expand(which, factor.value.view(), bases_[c].Of(Other(which)).view(),
                        whole.value.view());
    if (!rest.value.empty()) channel.form.PutRest(rest.value.view(), whole.value.view());
    return whole;
  }

  // The factor that came is the next one's basis.
  void KeepBasis(const ServerContext& context, size_t c, const FlatVector& factor) {
    const FactoredChannel& channel = factoring_.channels[c];
    const Factor which = factoring_.Sent(context.round, context.phase);
    const std::vector<uint32_t> ranks = RanksOf(c, Other(which));  // of what it was a product with
    FlatVector& basis = bases_[c].Of(which);
    Copy(factor.view(), basis.view());
    channel.form.Orthonormalise(which, ranks,
                                context.Random(absl::StrCat("update basis ", channel.spec.name)),
                                basis.view());
  }

  std::vector<uint32_t> RanksOf(size_t c, Factor which) const {
    return factoring_.channels[c].form.RanksOf(which, bases_[c].Of(which).view());
  }

  double MeanRank() const {
    double sum = 0;
    for (size_t c = 0; c < bases_.size(); ++c)
      sum += factoring_.channels[c].form.MeanRank(RanksOf(c, Factor::kP));
    return sum / static_cast<double>(bases_.size());  // all have the model's matrices
  }

  // By the clients' mean errors. What both bases have of the new ranks stays.
  void ChooseRanks(const ServerContext& context, size_t c, const FlatVector& errors) {
    const FactoredChannel& channel = factoring_.channels[c];
    const std::vector<uint32_t> ranks = channel.form.Choose(errors.view());
    if (ranks == RanksOf(c, Factor::kP)) return;
    for (const Factor which : {Factor::kP, Factor::kQ}) {
      channel.form.Orthonormalise(which, ranks,
                                  context.Random(absl::StrCat("update ranks ", channel.spec.name,
                                                              which == Factor::kP ? " p" : " q")),
                                  bases_[c].Of(which).view());
    }
  }

  static AggregatedChannel Take(Aggregate& aggregate, const std::string& name) {
    AggregatedChannel& found = ChannelOf(aggregate, name);
    AggregatedChannel taken = std::move(found);
    aggregate.channels.erase(aggregate.channels.begin() + (&found - aggregate.channels.data()));
    return taken;
  }

  template <typename F>
  void ForEachBasis(F&& f) const {
    for (size_t c = 0; c < bases_.size(); ++c) {
      const std::string& name = factoring_.channels[c].spec.name;
      f(c, Factor::kP, absl::StrCat("update_p_", name));
      f(c, Factor::kQ, absl::StrCat("update_q_", name));
    }
  }

  const Factoring factoring_;
  std::vector<Bases> bases_;
  Aggregate held_;  // of powersgd's first phase
};

}  // namespace

std::unique_ptr<ServerAlgorithm> MakeFactoredServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    Factoring factoring) {
  return std::make_unique<FactoredServer>(std::move(inner), std::move(factoring));
}

}  // namespace macaw::algorithms
