#include "aggregation/plan.h"

#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "core/status.h"

namespace macaw::aggregation {
namespace {

// Outside these ranges an exponent could exceed a double's. They are far beyond any real use.
constexpr double kSmallestWeight = 0x1p-100;
constexpr uint64_t kMostClients = uint64_t{1} << 40;
constexpr int kProductBits = 50;  // the fold's rounding needs |q| < 2^51
constexpr int kSumBits = 61;
constexpr int kF64Limbs = 3;
// Tolerance for a planned total that was summed in double from weights that are not integers.
constexpr double kTotalSlack = 1 + 0x1p-40;

// The smallest k with x <= 2^k, for x > 0.
int CeilLog2(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5 ? exponent - 1 : exponent;
}

absl::Status CheckOrder(const GridOrder& order) {
  if (!(order.max_weight >= kSmallestWeight) || !std::isfinite(order.max_weight) ||
      !std::isfinite(order.total_weight) || !(order.total_weight >= order.max_weight)) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid order: the largest weight is ", order.max_weight, " and the total ",
                     order.total_weight,
                     "; need 2^-100 <= largest <= total, both finite: check the cohort's weights"));
  }
  if (order.max_multiplicity == 0 || order.total_multiplicity < order.max_multiplicity ||
      order.total_multiplicity > kMostClients) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grid order: the largest multiplicity is ", order.max_multiplicity, " and the total ",
        order.total_multiplicity, "; need 1 <= largest <= total <= 2^40: check the cohort"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> WeightBits(const GridOrder& order) {
  const int bits =
      std::min(kProductBits - CeilLog2(order.max_weight), kSumBits - CeilLog2(order.total_weight));
  if (bits < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grid order: a weight of ", order.max_weight, " or a total of ", order.total_weight,
        " is too large to be kept exactly (2^50 and 2^61 at most): scale the weights down"));
  }
  return bits;
}

Digest DigestOf(const std::vector<ChannelSpec>& channels, const GridOrder& order) {
  Digester digester;
  digester.Add(absl::string_view("macaw exact sum plan 1"));
  digester.Add(std::bit_cast<uint64_t>(order.max_weight))
      .Add(std::bit_cast<uint64_t>(order.total_weight))
      .Add(uint64_t{order.max_multiplicity})
      .Add(order.total_multiplicity)
      .Add(uint64_t{channels.size()});
  for (const ChannelSpec& channel : channels) {
    digester.Add(absl::string_view(channel.name))
        .Add(std::span<const std::byte>(std::as_bytes(std::span(channel.layout->digest().bytes))))
        .Add(static_cast<uint64_t>(channel.reduction))
        .Add(std::bit_cast<uint64_t>(channel.bound))
        .Add(std::bit_cast<uint64_t>(channel.divisor));
  }
  return digester.Finish();
}

}  // namespace

absl::StatusOr<Grid> MakeGrid(const ChannelSpec& channel, const GridOrder& order) {
  const auto refuse = [&channel](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("channel '", channel.name, "': ", why));
  };
  MACAW_RETURN_IF_ERROR(CheckOrder(order));
  if (channel.layout == nullptr) return refuse("it has no layout");
  if (!(channel.bound >= kSmallestBound) || !(channel.bound <= kLargestBound)) {
    return refuse(absl::StrCat("the bound must lie in [2^-200, 2^200], not ", channel.bound));
  }
  if (channel.reduction == Reduction::kFixedSum &&
      (!(channel.divisor > 0) || !std::isfinite(channel.divisor))) {
    return refuse(absl::StrCat("the divisor must be positive and finite, not ", channel.divisor));
  }
  Grid grid;
  if (!IsSum(channel.reduction)) return grid;

  const bool weighted = channel.reduction == Reduction::kWeightedMean;
  const double largest = weighted ? order.max_weight : order.max_multiplicity;
  const double total =
      weighted ? order.total_weight : static_cast<double>(order.total_multiplicity);
  grid.bits = std::min(kProductBits - CeilLog2(largest), kSumBits - CeilLog2(total)) -
              CeilLog2(channel.bound);
  if (channel.layout->dtype() == DType::kF64) {
    // The product of two doubles and its rounding error both use the further limbs
    // (fold_kernels.h), which takes two of the 50 bits. Each of n clients adds at most 2^limb_bits.
    grid.limbs = kF64Limbs;
    grid.limb_bits = std::min(kProductBits - 2,
                              kSumBits - CeilLog2(static_cast<double>(order.total_multiplicity)));
  }
  return grid;
}

absl::StatusOr<std::shared_ptr<const Plan>> Plan::Make(std::vector<ChannelSpec> channels,
                                                       const GridOrder& order) {
  if (channels.empty())
    return absl::InvalidArgumentError("an exact sum needs at least one channel");
  auto plan = std::make_shared<Plan>();
  for (const ChannelSpec& channel : channels) {
    MACAW_ASSIGN_OR_RETURN(const Grid grid, MakeGrid(channel, order));
    plan->grids.push_back(grid);
  }
  MACAW_ASSIGN_OR_RETURN(plan->weight_bits, WeightBits(order));
  plan->channels = std::move(channels);
  plan->order = order;
  // Rounding a weight to the grid changes it by at most half a unit.
  plan->weight_limit =
      static_cast<int64_t>(std::ldexp(order.total_weight, plan->weight_bits) * kTotalSlack) +
      static_cast<int64_t>(order.total_multiplicity);
  plan->digest = aggregation::DigestOf(plan->channels, order);
  return plan;
}

int64_t Plan::LimbLimit(size_t channel, int limb, uint64_t clients, uint64_t multiplicity,
                        int64_t weight, double largest) const {
  const Grid& grid = grids[channel];
  if (limb > 0) return static_cast<int64_t>(clients << grid.limb_bits);
  const double total = channels[channel].reduction == Reduction::kWeightedMean
                           ? FromUnits(weight)
                           : static_cast<double>(multiplicity);
  // Four units per client: half a unit for rounding the product, half a weight unit for the weight,
  // and the rest for this sum.
  return static_cast<int64_t>(std::ldexp(total * largest, grid.bits) * kTotalSlack) +
         static_cast<int64_t>(4 * clients);
}

absl::Status Plan::CheckContribution(ClientId client, double weight, uint32_t multiplicity,
                                     uint64_t sum_multiplicity, int64_t sum_weight) const {
  const std::string who = absl::StrCat("client ", client.value);
  if (multiplicity == 0 || multiplicity > order.max_multiplicity) {
    return absl::InvalidArgumentError(absl::StrCat(who, ": multiplicity ", multiplicity,
                                                   " is not in 1 … ", order.max_multiplicity,
                                                   ", the largest planned"));
  }
  const double product = multiplicity * weight;
  if (!(weight >= 0) || !(product <= order.max_weight)) {
    return absl::InvalidArgumentError(absl::StrCat(who, ": weight ", product, " is not in 0 … ",
                                                   order.max_weight, ", the largest planned"));
  }
  if (sum_multiplicity + multiplicity > order.total_multiplicity ||
      sum_weight + ToUnits(product) > weight_limit) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, ": takes the sum past the planned total (", order.total_multiplicity,
                     " clients weighing ", order.total_weight, "): was a client added twice?"));
  }
  return absl::OkStatus();
}

double Plan::Scale(size_t channel, double weight, uint32_t multiplicity) const {
  const double factor = channels[channel].reduction == Reduction::kWeightedMean
                            ? multiplicity * weight
                            : multiplicity;
  return std::ldexp(factor, grids[channel].bits);
}

int64_t Plan::ToUnits(double weight) const {
  return static_cast<int64_t>(std::nearbyint(std::ldexp(weight, weight_bits)));  // half to even
}

double Plan::FromUnits(int64_t units) const {
  return std::ldexp(static_cast<double>(units), -weight_bits);
}

}  // namespace macaw::aggregation
