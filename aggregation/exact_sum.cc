#include "aggregation/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/parallel_for.h"
#include "core/status.h"

namespace macaw::aggregation {
namespace {

// The slow path after LargestMagnitude found a bad value.
absl::Status FindOffender(const ChannelSpec& spec, ConstVectorView view) {
  return DispatchDType(view.dtype(), [&]<typename T>(T) -> absl::Status {
    const std::span<const T> values = view.As<T>();
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [&](T v) { return !(std::fabs(double{v}) <= spec.bound); });
    return DescribeOffender(spec, static_cast<uint64_t>(bad - values.begin()), *bad);
  });
}

absl::Status CheckView(const ChannelSpec& spec, ConstVectorView view) {
  const auto refuse = [&spec](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("channel '", spec.name, "': ", why));
  };
  if (view.empty()) return refuse("no vector was given");
  if (view.layout != spec.layout.get() && view.layout->digest() != spec.layout->digest()) {
    return refuse("the vector has another layout (names, shapes or dtype differ)");
  }
  if (view.bytes.size() != spec.layout->bytes()) {
    return refuse(absl::StrCat("the vector has ", view.bytes.size(), " bytes instead of ",
                               spec.layout->bytes()));
  }
  if (reinterpret_cast<uintptr_t>(view.bytes.data()) % SizeOf(view.dtype()) != 0) {
    return refuse("the vector is not aligned to its elements");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeOffender(const ChannelSpec& spec, uint64_t index, double value) {
  std::string place = "padding";
  for (const LayoutEntry& entry : spec.layout->entries()) {
    if (index >= entry.offset && index < entry.offset + entry.size) {
      place = absl::StrCat("tensor '", entry.name, "' element ", index - entry.offset);
    }
  }
  const std::string message = absl::StrCat("channel '", spec.name, "', ", place, " is ", value,
                                           "; the channel takes finite values up to ", spec.bound,
                                           " (a diverged client, or a bound that is too small)");
  return std::isfinite(value) ? absl::OutOfRangeError(message)
                              : absl::InvalidArgumentError(message);
}

double LargestMagnitude(ConstVectorView view) {
  const FoldKernels& kernels = BestKernels();
  if (view.dtype() == DType::kF32) {
    return std::bit_cast<float>(kernels.largest_f32(view.As<float>().data(), view.size()));
  }
  return std::bit_cast<double>(kernels.largest_f64(view.As<double>().data(), view.size()));
}

ExactSum::ExactSum(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExactSum::ExactSum(ExactSum&&) noexcept = default;
ExactSum& ExactSum::operator=(ExactSum&&) noexcept = default;
ExactSum::~ExactSum() = default;

bool ExactSum::State::Has(size_t channel, ClientId client) const {
  return std::ranges::binary_search(channels[channel].collected, client, {}, &Collected::client);
}

void ExactSum::State::Fold(size_t channel, ConstVectorView view, const Contribution& contribution) {
  const FoldKernels& kernels = BestKernels();
  const bool f32 = view.dtype() == DType::kF32;
  const bool first = clients == 0;
  const uint64_t n = view.size();
  const Reduction reduction = spec(channel).reduction;
  if (reduction == Reduction::kCollect) {
    std::vector<Collected>& collected = channels[channel].collected;
    const auto place =
        std::ranges::lower_bound(collected, contribution.client, {}, &Collected::client);
    collected.insert(place, {contribution.client, contribution.multiplicity,
                             FlatVector::CopyOf(view, spec(channel).layout)});
    return;
  }
  if (first && HasFloats(spec(channel)) && !spec(channel).coded && n >= kLargeSum) {
    FlatVector given = contribution.give ? contribution.give(channel) : FlatVector();
    if (given.empty()) given = FlatVector::CopyOf(view, spec(channel).layout);
    channels[channel].first = std::move(given);
    return;
  }
  const std::span<const int64_t> before = channels[channel].integers;
  const std::span<int64_t> own = Own(channel);
  if (before.data() != own.data() && !first)
    ParallelCopy(std::as_bytes(before), std::as_writable_bytes(own).data());
  channels[channel].integers = own;
  int64_t* const integers = own.data();
  if (reduction == Reduction::kMax) {
    const auto fold32 = first ? kernels.key_f32 : kernels.max_f32;
    const auto fold64 = first ? kernels.key_f64 : kernels.max_f64;
    f32 ? fold32(view.As<float>().data(), integers, n)
        : fold64(view.As<double>().data(), integers, n);
  } else {
    const double scale = plan->Scale(channel, contribution.weight, contribution.multiplicity);
    const double step = std::ldexp(1.0, plan->grids[channel].limb_bits);
    const auto fold32 = first ? kernels.set_f32 : kernels.add_f32;
    const auto fold64 = first ? kernels.set_f64 : kernels.add_f64;
    f32 ? fold32(view.As<float>().data(), scale, integers, n)
        : fold64(view.As<double>().data(), scale, step, integers, n);
  }
}

void ExactSum::State::Remember(size_t c, ConstVectorView view) {
  const bool tells = spec(c).coded && IsSum(spec(c).reduction) && view.dtype() == DType::kF32;
  channels[c].alone =
      tells && clients == 0 ? FlatVector::CopyOf(view, spec(c).layout) : FlatVector();
}

ExactSum::State::State(std::shared_ptr<const Plan> made_from) : plan(std::move(made_from)) {
  channels.resize(plan->channels.size());
  largest.resize(plan->channels.size());
}

std::span<int64_t> ExactSum::State::Own(size_t channel) {
  AlignedBuffer& own = channels[channel].own;
  const size_t bytes = count(channel) * sizeof(int64_t);
  if (own.size() != bytes) own = AlignedBuffer::Unset(bytes);
  return own.As<int64_t>();
}

absl::StatusOr<ExactSum> ExactSum::Make(std::vector<ChannelSpec> channels, const GridOrder& order) {
  MACAW_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, Plan::Make(std::move(channels), order));
  return ExactSum(std::make_unique<State>(std::move(plan)));
}

absl::Status ExactSum::Check(const Contribution& contribution) const {
  State& s = *state_;
  const Plan& plan = *s.plan;
  const auto refuse = [&contribution](const absl::Status& why) {
    return Annotate(why, absl::StrCat("client ", contribution.client.value));
  };

  if (contribution.values.size() != plan.channels.size()) {
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        "gave ", contribution.values.size(), " channels instead of ", plan.channels.size())));
  }
  MACAW_RETURN_IF_ERROR(plan.CheckContribution(contribution.client, contribution.weight,
                                               contribution.multiplicity, s.multiplicity,
                                               s.weight));
  for (size_t c = 0; c < plan.channels.size(); ++c) {
    const ChannelSpec& spec = plan.channels[c];
    const ConstVectorView view = contribution.values[c];
    if (absl::Status status = CheckView(spec, view); !status.ok()) return refuse(status);
    s.largest[c] = LargestMagnitude(view);
    if (!(s.largest[c] <= spec.bound)) return refuse(FindOffender(spec, view));
    if (s.Has(c, contribution.client)) {
      return refuse(absl::AlreadyExistsError(
          absl::StrCat("channel '", spec.name, "' has its vector already")));
    }
  }
  return absl::OkStatus();
}

absl::Status ExactSum::Add(const Contribution& contribution) {
  MACAW_RETURN_IF_ERROR(Check(contribution));
  State& s = *state_;
  if (s.clients > 0) s.Unfold();
  s.alone_weight = s.clients == 0 ? contribution.weight : 0;
  for (size_t c = 0; c < s.channels.size(); ++c) {
    s.Fold(c, contribution.values[c], contribution);
    s.Remember(c, contribution.values[c]);
    s.channels[c].max_abs = std::max(s.channels[c].max_abs, s.largest[c]);
  }
  s.lender = nullptr;
  ++s.clients;
  s.multiplicity += contribution.multiplicity;
  s.weight += s.plan->ToUnits(contribution.multiplicity * contribution.weight);
  return absl::OkStatus();
}

absl::Status ExactSum::State::CheckMerge(const State& other) const {
  if (plan != other.plan && plan->digest != other.plan->digest) {
    return absl::InvalidArgumentError(
        "the sums were made for different channels, bounds or cohorts");
  }
  const GridOrder& order = plan->order;
  if (multiplicity + other.multiplicity > order.total_multiplicity ||
      weight + other.weight > plan->weight_limit) {
    return absl::FailedPreconditionError(
        absl::StrCat("sums of ", multiplicity, " and ", other.multiplicity,
                     " clients weigh more than the planned ", order.total_multiplicity,
                     " clients weighing ", order.total_weight, ": was a client added twice?"));
  }
  for (size_t c = 0; c < channels.size(); ++c) {
    for (const Collected& theirs : other.channels[c].collected) {
      if (Has(c, theirs.client)) {
        return absl::AlreadyExistsError(absl::StrCat("channel '", spec(c).name,
                                                     "' has the vector of client ",
                                                     theirs.client.value, " already"));
      }
    }
  }
  return absl::OkStatus();
}

void Combine(Reduction reduction, std::span<const int64_t* const> parts, int64_t* out,
             size_t count) {
  constexpr size_t kCached = size_t{1} << 14;  // integers that stay in a core's cache meanwhile
  const FoldKernels& kernels = BestKernels();
  const auto merge = reduction == Reduction::kMax ? kernels.merge_max : kernels.merge_add;
  ParallelFor(count, kGrain, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kCached) {
      const size_t size = std::min(kCached, end - at);
      if (parts[0] != out) std::memcpy(out + at, parts[0] + at, size * sizeof(int64_t));
      for (const int64_t* part : parts.subspan(1)) merge(part + at, out + at, size);
    }
  });
}

absl::Status ExactSum::Merge(ExactSum&& other) {
  State& s = *state_;
  State& o = *other.state_;
  MACAW_RETURN_IF_ERROR(s.CheckMerge(o));
  if (s.clients == 0) {
    state_ = std::move(other.state_);
    return absl::OkStatus();
  }
  if (o.clients == 0) return absl::OkStatus();
  s.Unfold();
  o.AddTo(s);
  s.alone_weight = 0;
  for (size_t c = 0; c < s.channels.size(); ++c) {
    State::Channel& mine = s.channels[c];
    State::Channel& theirs = o.channels[c];
    mine.alone = {};
    mine.max_abs = std::max(mine.max_abs, theirs.max_abs);
    const auto middle = static_cast<ptrdiff_t>(mine.collected.size());
    std::ranges::move(theirs.collected, std::back_inserter(mine.collected));
    std::ranges::inplace_merge(mine.collected, mine.collected.begin() + middle, {},
                               &State::Collected::client);
  }
  s.lender = nullptr;
  s.clients += o.clients;
  s.multiplicity += o.multiplicity;
  s.weight += o.weight;
  return absl::OkStatus();
}

bool ExactSum::CollectedFrom(std::span<const std::pair<ClientId, uint32_t>> clients) const {
  for (size_t c = 0; c < state_->channels.size(); ++c) {
    if (state_->spec(c).reduction != Reduction::kCollect) continue;
    const bool same = std::ranges::equal(state_->channels[c].collected, clients,
                                         [](const State::Collected& a, const auto& b) {
                                           return a.client == b.first && a.multiplicity == b.second;
                                         });
    if (!same) return false;
  }
  return true;
}

uint64_t ExactSum::clients() const { return state_->clients; }
uint64_t ExactSum::multiplicity() const { return state_->multiplicity; }
double ExactSum::weight() const { return state_->plan->FromUnits(state_->weight); }

}  // namespace macaw::aggregation
