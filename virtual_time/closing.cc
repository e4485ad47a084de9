#include "virtual_time/closing.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace macaw::virtual_time {

namespace {

using Ties = std::function<uint64_t(uint32_t place)>;

// Orders the equal turns among which the first `count` end.
void OrderTies(std::span<const double> seconds, uint64_t count, const Ties& tie,
               std::vector<uint32_t>& order) {
  if (count == 0 || count == order.size()) return;
  const double last = seconds[order[count - 1]];
  if (seconds[order[count]] != last) return;
  const auto equal =
      std::ranges::equal_range(order, last, {}, [&](uint32_t place) { return seconds[place]; });
  std::vector<std::pair<uint64_t, uint32_t>> keyed;
  for (const uint32_t place : equal) keyed.emplace_back(tie(place), place);
  std::ranges::sort(keyed);
  std::ranges::transform(keyed, equal.begin(), &std::pair<uint64_t, uint32_t>::second);
}

}  // namespace

Closing CloseRound(std::span<const double> seconds, const ClosingRules& rules, const Ties& tie) {
  Closing closing;
  if (seconds.empty()) return closing;
  std::vector<uint32_t> order(seconds.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](uint32_t place) { return seconds[place]; });
  const uint64_t all = order.size();
  const uint64_t wanted = rules.keep > 0 ? std::min(rules.keep, all) : all;
  const uint64_t needed = std::min(std::max<uint64_t>(rules.needed, 1), wanted);
  uint64_t count = wanted;
  if (rules.deadline > 0) {
    const auto late = std::ranges::upper_bound(order, rules.deadline, {},
                                               [&](uint32_t place) { return seconds[place]; });
    const auto in_time = std::min(static_cast<uint64_t>(late - order.begin()), wanted);
    closing.dropped = in_time < needed && rules.drops_below;
    count = std::max(in_time, needed);
    if (closing.dropped) count = 0;
    closing.late = wanted - (closing.dropped ? in_time : count);
  }
  closing.not_needed = all - wanted;
  OrderTies(seconds, count, tie, order);
  order.resize(count);
  // With its last turn, or at the deadline if it waited in vain until then.
  closing.seconds = count == 0 ? rules.deadline : seconds[order.back()];
  if (closing.late > 0) closing.seconds = std::max(closing.seconds, rules.deadline);
  std::ranges::sort(order);
  closing.kept = std::move(order);
  return closing;
}

}  // namespace macaw::virtual_time
