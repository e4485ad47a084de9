#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "aggregation/exact_sum.h"
#include "aggregation/exact_sum_state.h"
#include "aggregation/fold_kernels.h"
#include "core/file_blocks.h"
#include "core/parallel_for.h"
#include "core/status.h"

// The only division of a round, and the only conversion from integers to floating point. It runs
// once per round and element, so exactness matters more than speed.

namespace macaw::aggregation {
namespace {

// A sum high + low that is not evaluated, with |low| ≤ ulp(high)/2: about 106 bits (Dekker 1971).
struct DoubleDouble {
  double high = 0;
  double low = 0;
};

DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

DoubleDouble Plus(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = TwoSum(a.high, b.high);
  const DoubleDouble low = TwoSum(a.low, b.low);
  const DoubleDouble sum = TwoSum(high.high, high.low + low.high);
  return TwoSum(sum.high, sum.low + low.low);
}

// Exact for |integer| < 2^62.
DoubleDouble FromInteger(int64_t integer) {
  const auto high = static_cast<double>(integer);
  return {high, static_cast<double>(integer - static_cast<int64_t>(high))};
}

DoubleDouble Scaled(DoubleDouble a, double power_of_two) {
  return {a.high * power_of_two, a.low * power_of_two};
}

double Quotient(DoubleDouble a, DoubleDouble b) {
  const double first = a.high / b.high;
  // The remainder a − first·b, almost exact.
  const double product = first * b.high;
  const double product_error = std::fma(first, b.high, -product);
  const double rest = ((a.high - product) - product_error) + a.low - first * b.low;
  return first + rest / b.high;
}

// Moves what exceeds half a unit of the next coarser limb into that limb, so that the limbs no
// longer cancel each other.
int64_t Carry(int64_t& limb, int limb_bits) {
  const int64_t half = int64_t{1} << (limb_bits - 1);
  const int64_t carry = (limb + half) >> limb_bits;  // floor
  limb -= carry << limb_bits;
  return carry;
}

struct Divisor {
  DoubleDouble value;
  int bits = 0;  // of the channel's grid
};

void DivideF64(const int64_t* limbs, uint64_t stride, const Grid& grid, const Divisor& divisor,
               std::span<double> out) {
  const double unit = std::ldexp(1.0, -divisor.bits);
  const double step = std::ldexp(1.0, -grid.limb_bits);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t third = limbs[2 * stride + i];
    int64_t second = limbs[stride + i] + Carry(third, grid.limb_bits);
    const int64_t first = limbs[i] + Carry(second, grid.limb_bits);
    DoubleDouble sum = Scaled(FromInteger(third), step * step);
    sum = Plus(sum, Scaled(FromInteger(second), step));
    sum = Plus(sum, FromInteger(first));
    out[i] = Quotient(Scaled(sum, unit), divisor.value);
  }
}

// Divides integers, and puts the floats where the integers were, in the first half of the memory. A
// piece's floats take the place of integers that come before the piece, but for the first piece, so
// pieces whose numbers have equally many digits can be done at once when all before them are.
void DivideInPlace(std::span<int64_t> integers, double unit, double divisor) {
  auto* const out = reinterpret_cast<std::byte*>(integers.data());
  const size_t pieces = (integers.size() - 1) / kGrain + 1;
  const auto divide = [&](size_t piece) {
    std::array<float, 2048> floats;
    const size_t end = std::min((piece + 1) * kGrain, integers.size());
    for (size_t at = piece * kGrain; at < end; at += floats.size()) {
      const size_t count = std::min(floats.size(), end - at);
      BestKernels().divide_f32(integers.data() + at, unit, divisor, floats.data(), count);
      std::memcpy(out + at * sizeof(float), floats.data(), count * sizeof(float));
    }
  };
  divide(0);
  for (size_t first = 1; first < pieces; first *= 2) {
    ParallelFor(std::min(first, pieces - first), 1, [&](size_t begin, size_t end) {
      for (size_t piece = begin; piece < end; ++piece) divide(first + piece);
    });
  }
}

void ZeroGaps(FlatVector& vector) {
  const size_t width = SizeOf(vector.layout()->dtype());
  const std::span<std::byte> bytes = vector.view().bytes;
  uint64_t at = 0;  // the end of the tensor before
  const auto zero_until = [&](uint64_t next) {
    if (next > at) std::memset(bytes.data() + at * width, 0, (next - at) * width);
  };
  for (const LayoutEntry& entry : vector.layout()->entries()) {
    zero_until(entry.offset);
    at = entry.offset + entry.size;
  }
  zero_until(vector.layout()->size());
}

}  // namespace

absl::StatusOr<Aggregate> ExactSum::Report() && {
  const std::unique_ptr<State> state = std::move(state_);
  if (state == nullptr) return absl::FailedPreconditionError("this sum was reported already");
  State& s = *state;
  s.Unfold();
  Aggregate aggregate;
  aggregate.clients = s.clients;
  for (size_t c = 0; c < s.channels.size(); ++c) {
    const ChannelSpec& spec = s.spec(c);
    const Grid& grid = s.plan->grids[c];
    State::Channel& channel = s.channels[c];
    AggregatedChannel& result = aggregate.channels.emplace_back();
    result.name = spec.name;
    result.max_abs = channel.max_abs;
    const bool weighted = spec.reduction == Reduction::kWeightedMean;
    result.weight = weighted ? s.plan->FromUnits(s.weight) : static_cast<double>(s.multiplicity);

    if (spec.reduction == Reduction::kCollect) {
      for (State::Collected& entry : channel.collected) {  // a client drawn m times counts m times
        for (uint32_t copy = 1; copy < entry.multiplicity; ++copy) {
          result.collected.emplace_back(entry.client, entry.vector.Clone());
        }
        result.collected.emplace_back(entry.client, std::move(entry.vector));
      }
      continue;
    }
    const bool nothing = weighted ? s.weight == 0 : s.multiplicity == 0;
    if (nothing && spec.reduction != Reduction::kFixedSum) continue;

    // Sums of nobody are zero, and the gaps between tensors stay zero whatever was sent.
    if (s.clients == 0) {
      result.value = FlatVector(spec.layout);
      continue;
    }
    Divisor divisor{FromInteger(static_cast<int64_t>(s.multiplicity)), grid.bits};
    if (weighted)
      divisor.value = Scaled(FromInteger(s.weight), std::ldexp(1.0, -s.plan->weight_bits));
    if (spec.reduction == Reduction::kFixedSum) divisor.value = {spec.divisor, 0};
    const double unit = std::ldexp(1.0, -grid.bits);
    const bool is_own = channel.integers.data() == channel.own.As<int64_t>().data();
    if (HasFloats(spec) && is_own && s.count(c) >= kLargeSum) {  // no memory for a second copy
      DivideInPlace(channel.own.As<int64_t>(), unit, divisor.value.high);
      GiveUpSpace(std::as_const(channel.own).bytes().subspan(spec.layout->bytes()));
      channel.own.Truncate(spec.layout->bytes());
      result.value = FlatVector::In(std::move(channel.own), spec.layout);
      ZeroGaps(result.value);
      continue;
    }
    result.value = FlatVector::Unset(spec.layout);
    ZeroGaps(result.value);
    DispatchDType(spec.layout->dtype(), [&]<typename T>(T) {
      for (const LayoutEntry& entry : spec.layout->entries()) {
        ParallelFor(entry.size, kGrain, [&](size_t begin, size_t end) {
          const std::span<T> out = result.value.As<T>().subspan(entry.offset + begin, end - begin);
          const int64_t* const from = channel.integers.data() + entry.offset + begin;
          if (spec.reduction == Reduction::kMax) {
            for (size_t i = 0; i < out.size(); ++i)
              out[i] = static_cast<T>(FromOrderedKey(from[i]));
          } else if constexpr (std::is_same_v<T, float>) {
            BestKernels().divide_f32(from, unit, divisor.value.high, out.data(), out.size());
          } else {
            DivideF64(from, s.size(c), grid, divisor, out);
          }
        });
      }
    });
  }
  return aggregate;
}

}  // namespace macaw::aggregation
