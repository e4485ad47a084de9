#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/attack_rows.h"
#include "algorithms/around/decorated.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::Aggregate;
using aggregation::AggregatedChannel;
using aggregation::ChannelSpec;
using aggregation::Reduction;

double NumberIn(const FlatVector& value) { return value.empty() ? 0 : value.As<double>()[0]; }

// What a hostile client sends of one parameter.
class Lie {
 public:
  Lie(const AttackConfig& attack, double n, double m)
      : alie_(attack.kind == "alie"),
        factor_(alie_ ? attack.z.value_or(AlieDeviations(n, m)) : attack.Scale()) {}

  bool needs_deviation() const { return alie_; }
  double deviations() const { return factor_; }  // z, of alie
  double Of(double mean, double deviation) const {
    return alie_ ? mean - factor_ * deviation : -factor_ * mean;
  }

 private:
  const bool alie_;
  const double factor_;  // z or ε
};

// The square root of a variance that was rounded.
double Deviation(double variance) { return std::sqrt(std::max(0.0, variance)); }

class AttackedServer final : public DecoratedServer {
 public:
  AttackedServer(std::unique_ptr<ServerAlgorithm> inner, std::shared_ptr<const Attack> attack,
                 Schema rule, std::vector<std::string> beside)
      : DecoratedServer(std::move(inner)),
        attack_(std::move(attack)),
        rule_(std::move(rule)),
        beside_(std::move(beside)) {}

  absl::StatusOr<AfterApply> Apply(const ServerContext& context, Aggregate aggregate) override {
    const std::vector<AggregatedChannel> added = TakeAdded(aggregate);
    for (AggregatedChannel& channel : aggregate.channels) {
      const auto spec = std::ranges::find(rule_.up, channel.name, &ChannelSpec::name);
      if (spec == rule_.up.end()) continue;
      if (attack_->config.takes_rows()) {
        const std::optional<double> gamma = spec->reduction == Reduction::kCollect
                                                ? ReplaceByRows(*spec, channel.collected)
                                                : AddFromRows(*spec, added, channel);
        if (gamma.has_value() && attack_->config.takes_distances() && spec == rule_.up.begin())
          context.Report(kGammaMetric, *gamma);
        continue;
      }
      const std::optional<Lie> lie = spec->reduction == Reduction::kCollect
                                         ? ReplaceRows(*spec, channel.collected)
                                         : AddLies(*spec, added, channel);
      if (lie.has_value() && lie->needs_deviation())
        context.Report(kDeviationsMetric, lie->deviations());
    }
    return inner().Apply(context, std::move(aggregate));
  }

  MadeUp MakeUp(const Aggregate& aggregate) const override {
    MadeUp made{.by = [attack = attack_](ClientId client) { return attack->Hits(client); }};
    for (const AggregatedChannel& channel : aggregate.channels) {
      const auto spec = std::ranges::find(rule_.up, channel.name, &ChannelSpec::name);
      if (spec == rule_.up.end()) continue;
      std::optional<MadeUp::OnChannel> lie = spec->reduction == Reduction::kCollect
                                                 ? LieIn(*spec, channel.collected)
                                                 : LieIn(*spec, aggregate.channels, channel);
      if (lie.has_value()) made.channels.emplace(channel.name, *std::move(lie));
    }
    return made;
  }

 private:
  using Rows = std::vector<std::pair<ClientId, FlatVector>>;

  std::vector<AggregatedChannel> TakeAdded(Aggregate& aggregate) const {
    const auto begin = std::stable_partition(aggregate.channels.begin(), aggregate.channels.end(),
                                             [&](const AggregatedChannel& channel) {
                                               return std::ranges::count(rule_.up, channel.name,
                                                                         &ChannelSpec::name) > 0;
                                             });
    std::vector<AggregatedChannel> added(std::make_move_iterator(begin),
                                         std::make_move_iterator(aggregate.channels.end()));
    aggregate.channels.erase(begin, aggregate.channels.end());
    return added;
  }

  static const AggregatedChannel* Find(const std::vector<AggregatedChannel>& added,
                                       const std::string& name) {
    const auto found = std::ranges::find(added, name, &AggregatedChannel::name);
    return found == added.end() ? nullptr : &*found;
  }

  // Hostile clients have sent zeros. With p the honest part of the weight, the channel's value is
  // c·p·μ, c = 1 for a mean and n/divisor for a sum.
  struct Parts {
    double n = 0;       // clients
    double honest = 0;  // their part of n
    double p = 0, c = 1;
  };
  // nullopt: no client is honest, or none hostile.
  static std::optional<Parts> PartsOf(const ChannelSpec& spec,
                                      const std::vector<AggregatedChannel>& added,
                                      const AggregatedChannel& channel) {
    const AggregatedChannel* const count = Find(added, kHonestCount);
    const AggregatedChannel* const weight = Find(added, kHonestWeight);
    if (count == nullptr || weight == nullptr || channel.value.empty()) return std::nullopt;
    Parts parts{.n = count->weight, .honest = NumberIn(count->value)};
    const bool weighted = spec.reduction == Reduction::kWeightedMean;
    parts.p = weighted ? NumberIn(weight->value) : parts.honest;
    if (parts.p <= 0 || parts.p >= 1) return std::nullopt;
    if (spec.reduction == Reduction::kFixedSum) parts.c = parts.n / spec.divisor;
    return parts;
  }

  // Adds c·(1 − p)·lie, and returns the lie.
  std::optional<Lie> AddLies(const ChannelSpec& spec, const std::vector<AggregatedChannel>& added,
                             AggregatedChannel& channel) const {
    const std::optional<Parts> parts = PartsOf(spec, added, channel);
    if (!parts.has_value()) return std::nullopt;
    const double all = parts->c * (1 - parts->p);
    const Lie lie(attack_->config, parts->n, parts->n * (1 - parts->honest));
    DispatchDType(channel.value.layout()->dtype(), [&]<typename T>(T) {
      const std::span<T> values = channel.value.As<T>();
      ForEachSent<T>(spec, added, channel, *parts, lie, [&](uint64_t i, double sent) {
        values[i] = static_cast<T>(double{values[i]} + all * sent);
      });
    });
    return lie;
  }

  // f(i, what a hostile client sends there) of each element of a channel's value.
  template <typename T, typename F>
  void ForEachSent(const ChannelSpec& spec, const std::vector<AggregatedChannel>& added,
                   const AggregatedChannel& channel, const Parts& parts, const Lie& lie,
                   F&& f) const {
    const bool beside = IsBeside(spec);
    const AggregatedChannel* const squares =
        lie.needs_deviation() ? Find(added, SquaresOf(spec.name)) : nullptr;
    const ParameterLayout& layout = *channel.value.layout();
    for (size_t e = 0; e < layout.entries().size(); ++e) {
      const LayoutEntry& entry = layout.entries()[e];
      const double* square = squares == nullptr ? nullptr
                                                : squares->value.As<double>().data() +
                                                      squares->value.layout()->entries()[e].offset;
      for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
        const double mean = double{channel.value.As<T>()[i]} / (parts.c * parts.p);
        const double deviation =
            square == nullptr ? 0 : Deviation(*square++ / parts.p - mean * mean);
        const bool lies = entry.group == Group::kParameter && !beside;
        f(i, lies ? lie.Of(mean, deviation) : mean);
      }
    }
  }

  // What hostile clients send in a channel that is summed (MakeUp). nullopt: nothing.
  std::optional<MadeUp::OnChannel> LieIn(const ChannelSpec& spec,
                                         const std::vector<AggregatedChannel>& all,
                                         const AggregatedChannel& channel) const {
    const std::optional<Parts> parts = PartsOf(spec, all, channel);
    if (!parts.has_value()) return std::nullopt;
    MadeUp::OnChannel made{.share = 1 - parts->p};
    if (attack_->config.takes_rows()) {
      const AggregatedChannel* const each = Find(all, EachOf(spec.name));
      if (each == nullptr) return std::nullopt;
      made.vector = LieOf(spec, HonestOf(each->collected)).vector;
      return made;
    }
    const Lie lie(attack_->config, parts->n, parts->n * (1 - parts->honest));
    made.vector = FlatVector(channel.value.layout());
    DispatchDType(made.vector.layout()->dtype(), [&]<typename T>(T) {
      const std::span<T> values = made.vector.As<T>();
      ForEachSent<T>(spec, all, channel, *parts, lie,
                     [&](uint64_t i, double sent) { values[i] = static_cast<T>(sent); });
    });
    return made;
  }

  // The same in a channel that collects.
  std::optional<MadeUp::OnChannel> LieIn(const ChannelSpec& spec, const Rows& rows) const {
    const std::vector<const FlatVector*> honest = HonestOf(rows);
    if (honest.empty() || honest.size() == rows.size()) return std::nullopt;
    if (attack_->config.takes_rows()) return MadeUp::OnChannel{LieOf(spec, honest).vector};
    MadeUp::OnChannel made{FlatVector(honest[0]->layout())};
    WriteLie(spec, honest, LieAmong(rows, honest), made.vector);
    return made;
  }

  // The same of a lie that is made of each honest update. Returns its γ.
  std::optional<double> AddFromRows(const ChannelSpec& spec,
                                    const std::vector<AggregatedChannel>& added,
                                    AggregatedChannel& channel) const {
    const std::optional<Parts> parts = PartsOf(spec, added, channel);
    const AggregatedChannel* const each = Find(added, EachOf(spec.name));
    if (!parts.has_value() || each == nullptr) return std::nullopt;
    const RowsLie lie = LieOf(spec, HonestOf(each->collected));
    Axpy(parts->c * (1 - parts->p), lie.vector.view(), channel.value.view());
    return lie.gamma;
  }

  // In a channel that collects: gives hostile clients the lie, and returns its γ.
  std::optional<double> ReplaceByRows(const ChannelSpec& spec, Rows& rows) const {
    const std::vector<const FlatVector*> honest = HonestOf(rows);
    if (honest.empty() || honest.size() == rows.size()) return std::nullopt;
    const RowsLie lie = LieOf(spec, honest);
    for (auto& [client, vector] : rows) {
      if (attack_->Hits(client)) Copy(lie.vector.view(), vector.view());
    }
    return lie.gamma;
  }

  RowsLie LieOf(const ChannelSpec& spec, const std::vector<const FlatVector*>& honest) const {
    // mimic copies all of a client.
    return IsBeside(spec) && attack_->config.takes_distances()
               ? RowsLie{.vector = MeanOfRows(honest)}
               : LieFromRows(attack_->config, honest);
  }

  bool IsBeside(const ChannelSpec& spec) const {
    return std::ranges::count(beside_, spec.name) > 0;
  }

  std::vector<const FlatVector*> HonestOf(const Rows& rows) const {
    std::vector<const FlatVector*> honest;
    for (const auto& [client, vector] : rows) {
      if (!attack_->Hits(client)) honest.push_back(&vector);
    }
    return honest;
  }

  Lie LieAmong(const Rows& rows, const std::vector<const FlatVector*>& honest) const {
    return {attack_->config, static_cast<double>(rows.size()),
            static_cast<double>(rows.size() - honest.size())};
  }

  // The same by plain mean and deviation, since a rule that collects sees no weights.
  std::optional<Lie> ReplaceRows(const ChannelSpec& spec, Rows& rows) const {
    const std::vector<const FlatVector*> honest = HonestOf(rows);
    if (honest.empty() || honest.size() == rows.size()) return std::nullopt;
    const Lie lie = LieAmong(rows, honest);
    FlatVector* written = nullptr;
    for (auto& [client, vector] : rows) {
      if (!attack_->Hits(client)) continue;
      if (written != nullptr) {
        Copy(std::as_const(*written).view(), vector.view());
      } else {
        WriteLie(spec, honest, lie, vector);
        written = &vector;
      }
    }
    return lie;
  }

  void WriteLie(const ChannelSpec& spec, const std::vector<const FlatVector*>& honest,
                const Lie& lie, FlatVector& out) const {
    const auto n = static_cast<double>(honest.size());
    const ParameterLayout& layout = *honest[0]->layout();
    DispatchDType(layout.dtype(), [&]<typename T>(T) {
      std::vector<double> mean, variance;  // of a tensor
      for (const LayoutEntry& entry : layout.entries()) {
        mean.assign(entry.size, 0);
        variance.assign(entry.size, 0);
        for (const FlatVector* const row : honest) {
          const std::span<const T> values = row->As<T>().subspan(entry.offset, entry.size);
          for (size_t i = 0; i < values.size(); ++i) mean[i] += double{values[i]} / n;
        }
        for (const FlatVector* const row : honest) {
          const std::span<const T> values = row->As<T>().subspan(entry.offset, entry.size);
          for (size_t i = 0; i < values.size(); ++i) {
            const double d = double{values[i]} - mean[i];
            variance[i] += d * d / n;
          }
        }
        const bool lies = entry.group == Group::kParameter && !IsBeside(spec);
        const std::span<T> values = out.As<T>().subspan(entry.offset, entry.size);
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<T>(lies ? lie.Of(mean[i], Deviation(variance[i])) : mean[i]);
      }
    });
  }

  const std::shared_ptr<const Attack> attack_;
  const Schema rule_;                      // of the rule alone
  const std::vector<std::string> beside_;  // channels that are no updates
};

}  // namespace

double AlieDeviations(double n, double m) {
  constexpr double kMost = 3;
  const double s = std::floor(n / 2 + 1) - m;
  const double wanted = (n - m - s) / (n - m);
  const auto below = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };  // Φ
  double low = 0, high = kMost;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (below(middle) < wanted ? low : high) = middle;
  }
  return low;
}

std::unique_ptr<ServerAlgorithm> MakeAttackedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    Schema rule, std::vector<std::string> beside) {
  return std::make_unique<AttackedServer>(std::move(inner), std::move(attack), std::move(rule),
                                          std::move(beside));
}

}  // namespace macaw::algorithms
